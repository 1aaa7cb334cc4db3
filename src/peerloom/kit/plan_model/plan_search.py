"""The best plan of a setting: of all of them where they aren't too many, else by going from plan to plan."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from peerloom.kit.plan_model.pipeline_order import PIPELINE_ORDERS, check_order
from peerloom.kit.plan_model.placed_plan import PLAN_KINDS, SHARDED, PlacedPlan
from peerloom.kit.plan_model.plan_neighbours import neighbours
from peerloom.kit.plan_model.plan_seeds import seed_plans
from peerloom.kit.plan_model.plan_setting import PlanSetting
from peerloom.kit.plan_model.plan_space import all_plans
from peerloom.kit.plan_model.plan_value import (
    ROUNDING,
    CostedPlan,
    PlanPrediction,
    costed_plan,
    predict_plan,
)
from peerloom.kit.plan_model.room_missing import no_plan_fits
from peerloom.kit.plan_model.shard_plans import shard_plans
from peerloom.kit.plan_model.stage_costs import StageCosts

MOST_LISTED = 20_000  # plans of a setting whose every plan is looked at
MOST_EVALUATED = 4_000  # plans whose costs are reckoned in a larger setting
MOST_SIMULATED = 600
_TRIED_OF_A_KIND = 6  # plans of the other kinds, those that could be best, and of those that don't fit
_CLIMBS_OF_A_KIND = 2
_TRIED_AT_ONCE = 12  # neighbours simulated before a climb ends
_WORTH = 1e-6  # of what a plan finishes: less isn't a better plan
_NEARLY = 0.9  # of what the best plan that doesn't fit finishes: as good as it
_NEXT_BEST = 2  # that are told, beside the best of each other kind


@dataclass(frozen=True)
class PlanChoice:
    """The plan to take, and the next best: the best that was found of each other kind, and a few more.

    `too_large` has for each kind of which no plan was found that fits the one that lacks least.
    `with_more_memory` is a plan that would finish more and doesn't fit. Without `is_best_of_all` a better
    plan may exist. `evaluated` plans had their costs and bounds reckoned, `simulated` of them a step.
    """

    chosen: PlanPrediction
    others: tuple[PlanPrediction, ...]
    too_large: tuple[CostedPlan, ...]
    with_more_memory: PlanPrediction | None
    is_best_of_all: bool
    evaluated: int
    simulated: int


def choose_plan(
    setting: PlanSetting,
    orders: Sequence[str] = tuple(PIPELINE_ORDERS),
    most_listed: int = MOST_LISTED,
    kinds: Collection[str] = tuple(PLAN_KINDS),
) -> PlanChoice:
    """The plan of these `kinds` that finishes most samples a second.

    A setting of at most `most_listed` plans is searched through: plans are simulated, those with the highest
    bound first, until no bound is above what was found, or MOST_SIMULATED were. In a larger one seeds are
    changed step by step as long as that makes them better, and at most MOST_EVALUATED plans are looked at.
    Raises InvalidArgumentError for an unknown order, ResourceExhaustedError, saying what is missing, if none
    fits.
    """
    for order in orders:
        check_order(order)
    return _Search(setting, orders, kinds).choice(most_listed)


class _Search:
    def __init__(self, setting: PlanSetting, orders: Sequence[str], kinds: Collection[str]) -> None:
        self._setting = setting
        self._kinds = kinds
        self._orders = orders
        self._costs = StageCosts(setting)
        self._evaluated: dict[PlacedPlan, CostedPlan | None] = {}
        self._predicted: dict[PlacedPlan, PlanPrediction] = {}
        self._best: PlanPrediction | None = None

    def choice(self, most_listed: int) -> PlanChoice:
        every_one = all_plans(self._setting, self._orders) if {*self._kinds} - {SHARDED} else ()
        listed = list(islice(every_one, most_listed + 1))
        is_whole = len(listed) <= most_listed
        shards = self._evaluate_all(shard_plans(self._setting) if SHARDED in self._kinds else ())
        if is_whole:
            every = [*shards, *self._evaluate_all(listed)]
            fitting = _promising(one for one in every if not one.missing_bytes)
            is_whole = self._simulate_all(fitting)
        else:
            self._climb_all()
        known = [one for one in self._evaluated.values() if one is not None]
        self._try_each_kind(known)
        if self._best is None:
            raise no_plan_fits(self._setting, known)
        return PlanChoice(
            chosen=self._best,
            others=self._others(self._best),
            too_large=tuple(_nearest_too_large(known)),
            with_more_memory=self._with_more_memory(known, self._best.finished_per_s),
            is_best_of_all=is_whole,
            evaluated=len(self._evaluated),
            simulated=len(self._predicted),
        )

    def _evaluate(self, plan: PlacedPlan) -> CostedPlan | None:
        if plan not in self._evaluated:
            is_asked_for = plan.kind in self._kinds
            self._evaluated[plan] = costed_plan(plan, self._setting, self._costs) if is_asked_for else None
        return self._evaluated[plan]

    def _evaluate_all(self, plans: Iterable[PlacedPlan]) -> list[CostedPlan]:
        return [one for plan in plans if (one := self._evaluate(plan)) is not None]

    def _simulate(self, costed: CostedPlan) -> PlanPrediction:
        if costed.plan not in self._predicted:
            found = self._predicted[costed.plan] = predict_plan(costed, self._setting)
            if not costed.missing_bytes and (self._best is None or _rank(found) < _rank(self._best)):
                self._best = found
        return self._predicted[costed.plan]

    def _simulate_all(self, promising: Sequence[CostedPlan]) -> bool:
        """Until none can be better than the best; False if there were too many."""
        for costed in promising:
            best = self._best
            if best is not None and costed.most_per_s * (1 + ROUNDING) < best.finished_per_s:
                return True
            if len(self._predicted) >= MOST_SIMULATED:
                return False
            self._simulate(costed)
        return True

    def _climb_all(self) -> None:
        seeds = self._evaluate_all(
            islice(seed_plans(self._setting, self._orders, self._costs), MOST_EVALUATED // 2)
        )
        starts = []
        for kind in PLAN_KINDS:
            of_kind = _promising(one for one in seeds if one.plan.kind == kind)
            fitting = [one for one in of_kind if not one.missing_bytes][:_TRIED_OF_A_KIND]
            tried = sorted(map(self._simulate, fitting), key=_rank)
            starts += [one.costed for one in tried[:_CLIMBS_OF_A_KIND]]
            if not fitting:
                starts += sorted(of_kind, key=_missing)[:_CLIMBS_OF_A_KIND]
        starts.sort(key=lambda one: (_missing(one), -one.most_per_s))
        for number, start in enumerate(starts):
            # What the climbs before have left is shared out, so that the last one has its part.
            left = (MOST_EVALUATED - len(self._evaluated)) // (len(starts) - number)
            self._climb(start, len(self._evaluated) + left)

    def _climb(self, start: CostedPlan, most_evaluated: int) -> None:
        """From neighbour to neighbour: to one that lacks less memory, then to one that finishes more."""
        current: CostedPlan | None = start
        while current is not None and len(self._evaluated) < most_evaluated:
            left = most_evaluated - len(self._evaluated)
            near = self._evaluate_all(islice(neighbours(current.plan, self._setting, self._orders), left))
            current = self._larger(current, near) if current.missing_bytes else self._faster(current, near)

    def _larger(self, current: CostedPlan, near: Sequence[CostedPlan]) -> CostedPlan | None:
        found = min(near, key=lambda one: (_missing(one), -one.most_per_s), default=current)
        return found if _missing(found) < _missing(current) else None

    def _faster(self, current: CostedPlan, near: Sequence[CostedPlan]) -> CostedPlan | None:
        value = self._simulate(current).finished_per_s * (1 + _WORTH)
        for one in _promising(one for one in near if not one.missing_bytes)[:_TRIED_AT_ONCE]:
            if one.most_per_s <= value or len(self._predicted) >= MOST_SIMULATED:
                return None
            if self._simulate(one).finished_per_s > value:
                return one
        return None

    def _try_each_kind(self, known: Sequence[CostedPlan]) -> None:
        """A kind's best is told, and its plans with the highest bounds may not have been simulated yet."""
        for kind in PLAN_KINDS:
            of_kind = (one for one in known if one.plan.kind == kind and not one.missing_bytes)
            for one in _promising(of_kind)[:_TRIED_OF_A_KIND]:
                self._simulate(one)

    def _others(self, best: PlanPrediction) -> tuple[PlanPrediction, ...]:
        fitting = sorted((one for one in self._predicted.values() if not one.costed.missing_bytes), key=_rank)
        kinds, shapes, found = {best.plan.kind}, {_shape(best.plan)}, []
        spare = _NEXT_BEST
        for one in fitting:
            is_new_kind = one.plan.kind not in kinds
            if _shape(one.plan) in shapes or (not is_new_kind and not spare):
                continue
            spare -= not is_new_kind
            kinds.add(one.plan.kind)
            shapes.add(_shape(one.plan))
            found.append(one)
        return tuple(found)

    def _with_more_memory(self, known: Sequence[CostedPlan], value: float) -> PlanPrediction | None:
        """The best plan that doesn't fit, in that number of micro-batches and order which lacks little."""
        worth = _promising(one for one in known if one.missing_bytes and one.most_per_s > value)
        tried = sorted(map(self._simulate, worth[:_TRIED_OF_A_KIND]), key=_rank)
        if not tried or tried[0].finished_per_s <= value * (1 + _WORTH):
            return None
        wanted = max(value * (1 + _WORTH), _NEARLY * tried[0].finished_per_s)
        alike = [one for one in worth if one.plan.stages == tried[0].plan.stages and one.most_per_s >= wanted]
        by_missing = map(self._simulate, sorted(alike, key=lambda one: one.missing_bytes))
        return next((one for one in by_missing if one.finished_per_s >= wanted), tried[0])


def _promising(plans: Iterable[CostedPlan]) -> list[CostedPlan]:
    return sorted(plans, key=lambda one: (-one.most_per_s, *_plainness(one.plan)))


def _rank(one: PlanPrediction) -> tuple[float, int, int, int]:
    """Of plans that finish as much, to so many digits, the plainest is first."""
    return (-float(f"{one.finished_per_s:.9e}"), *_plainness(one.plan))


def _plainness(plan: PlacedPlan) -> tuple[int, int, int]:
    return len(plan.slots), len(plan.stages), plan.micro_batches


def _shape(plan: PlacedPlan) -> tuple[bool, tuple[int, ...]]:
    """How many slots each stage has, or shard: what tells plans from each other at a glance."""
    return plan.is_sharded, tuple(len(stage.slots) for stage in plan.stages)


def _missing(one: CostedPlan) -> float:
    return sum(stage.missing_bytes for stage in one.memory)


def _nearest_too_large(known: Sequence[CostedPlan]) -> Iterable[CostedPlan]:
    for kind in PLAN_KINDS:
        of_kind = [one for one in known if one.plan.kind == kind]
        if of_kind and all(one.missing_bytes for one in of_kind):
            yield min(of_kind, key=lambda one: (one.missing_bytes, _plainness(one.plan)))
