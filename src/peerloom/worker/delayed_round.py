"""One rank's work where a round's changes travel while the next round is computed."""

import time
from collections.abc import Sequence
from concurrent.futures import wait
from dataclasses import dataclass

from peerloom.worker.group.process_group import Group
from peerloom.worker.round_work import division, samples_of_ranks, walk_round
from peerloom.worker.sync import Synchroniser, SyncTraffic
from peerloom.worker.sync.delayed_steps import DelayedSteps, RoundAhead
from peerloom.worker.training import Training


@dataclass(frozen=True)
class DelayedRoundMade:
    """A round's mean loss, and each rank's samples in it; this rank has `trained` so many meanwhile."""

    loss: float
    counts: list[int]
    trained: int


def make_delayed_round(
    training: Training,
    local_steps: DelayedSteps,
    group: Group,
    sync: Synchroniser,
    steps: range,
    shares: Sequence[int],
) -> DelayedRoundMade:
    """Exchanges the round of the job's `steps` (from 0), and computes the next one meanwhile.

    All is done but for the outer optimiser's step. A generation's first round is computed before. Raises what
    `make_round` does; nothing has changed then, and both rounds will be computed again.
    """
    trained, grouped = 0, SyncTraffic()

    def computed(wanted: range, behind: RoundAhead | None) -> RoundAhead:
        nonlocal trained
        divided = division(training, wanted, shares)
        counts = samples_of_ranks(divided)
        trained += counts[group.rank]
        return local_steps.compute(
            wanted,
            group.generation,
            counts,
            behind,
            lambda: walk_round(training, local_steps, group, grouped, wanted, divided, steps.start),
        )

    now = local_steps.computed(steps, group.generation) or computed(steps, None)
    exposed_before_s = sync.traffic.exposed_s
    travelling = local_steps.send(now, sync, group.rank)
    try:
        ahead = None
        if steps.stop < training.schedule.total_steps:
            ahead = computed(training.steps_at_once(steps.stop), now)
        waiting_s = time.perf_counter()
        loss = travelling.result()
        sync.traffic.exposed_s = exposed_before_s + time.perf_counter() - waiting_s
        group.check()
    except BaseException:
        wait([travelling])  # it ends with the group, or as soon as all have sent theirs
        local_steps.drop(now)
        raise
    sync.traffic.add(grouped)
    local_steps.take()
    local_steps.keep(ahead)
    return DelayedRoundMade(loss, now.counts, trained)
