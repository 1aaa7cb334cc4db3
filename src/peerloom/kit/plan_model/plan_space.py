"""All plans of a setting, each once: which slots have which stage, where layers are cut, how a batch goes."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from peerloom.kit.plan_model.placed_plan import PlacedPlan, PlanStage
from peerloom.kit.plan_model.plan_setting import PlanSetting

MOST_MICRO_BATCHES = 64


def micro_batch_counts(batch: int) -> tuple[int, ...]:
    """Numbers of equal micro-batches that a batch can have, at most MOST_MICRO_BATCHES."""
    return tuple(count for count in range(1, min(batch, MOST_MICRO_BATCHES) + 1) if batch % count == 0)


def all_plans(setting: PlanSetting, orders: Sequence[str]) -> Iterator[PlacedPlan]:
    """Each plan once, those with few stages first; slots that can't be told apart aren't exchanged."""
    layers, counts = len(setting.layers), micro_batch_counts(setting.batch)
    alike = like_before(setting)
    for stages in range(1, min(layers, len(setting.slots)) + 1):
        for groups in slot_groups(len(setting.slots), stages, alike):
            for cuts in combinations(range(1, layers), stages - 1):
                edges = (0, *cuts, layers)
                cut = tuple(
                    PlanStage(first, end, slots)
                    for first, end, slots in zip(edges, edges[1:], groups, strict=False)
                )
                for count in counts:
                    for order in orders:
                        yield PlacedPlan(cut, count, order)


def slot_groups(slots: int, stages: int, alike: Sequence[bool]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Ways to give some of the slots to stages, at least one to each.

    Of slots that are `alike`, each equal to the one before it, the first one has the first stage.
    """
    chosen: list[int] = []

    def give(missing: int) -> Iterator[tuple[tuple[int, ...], ...]]:
        number = len(chosen)
        if missing > slots - number:
            return
        if number == slots:
            yield tuple(
                tuple(slot for slot, stage in enumerate(chosen) if stage == one) for one in range(stages)
            )
            return
        # The number beyond the last stage's means: left out.
        for stage in range(chosen[-1] if alike[number] else 0, stages + 1):
            is_new = stage < stages and stage not in chosen
            chosen.append(stage)
            yield from give(missing - is_new)
            chosen.pop()

    yield from give(stages)


def like_before(setting: PlanSetting) -> list[bool]:
    """For each slot whether it could change places with the one before it, and nobody would notice.

    Only neighbours: the order of a stage's slots decides who sends to whom.
    """
    return [slot > 0 and _are_alike(setting, slot - 1, slot) for slot in range(len(setting.slots))]


def _are_alike(setting: PlanSetting, one: int, other: int) -> bool:
    mine, theirs = setting.slots[one], setting.slots[other]
    facts = [(slot.speed, slot.memory_bytes, slot.interruption_s) for slot in (mine, theirs)]
    if facts[0] != facts[1]:
        return False
    for table in (setting.network.bits_per_s, setting.network.delay_s):
        if table[one][other] != table[other][one]:
            return False
        for third in range(len(setting.slots)):
            if third in (one, other):
                continue
            if table[one][third] != table[other][third] or table[third][one] != table[third][other]:
                return False
    return True
