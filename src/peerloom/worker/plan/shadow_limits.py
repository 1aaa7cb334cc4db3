"""Whether shadows need more memory than there is, or more of a step than they may: pure, of what stages tell.

All stages see the same figures, and so judge alike.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from peerloom.kit.shadow_ring import ward_of
from peerloom.kit.stage_ranks import StageRanks

MOST_OF_MEMORY = 0.9  # of what is free: activations want some too
MOST_OF_A_STEP = 0.15
STEPS_JUDGED, JUDGED_S = 8, 2.0  # at least: of a step of milliseconds any pause of its host is a large part
_WARM_UP = 2  # the first ones wait for the whole state


@dataclass(frozen=True)
class StageRoom:
    """Bytes of a stage's state and of a step's change to it; those free on its node, and of its accelerator.

    `accelerator_bytes` are infinite where the state lies in the node's memory.
    """

    state_bytes: float
    change_bytes: float
    free_bytes: float
    accelerator_bytes: float


def why_no_room(
    rooms: Sequence[StageRoom], holders: Sequence[int], node_ids: Sequence[str], ranks: StageRanks
) -> str:
    """Why shadows can't be kept; "": they fit. `rooms` and `node_ids` are by rank, `holders` by stage.

    A worker keeps its own past where its state lies, a change that leaves, and of its ward, if it has one,
    the state and two changes that wait.
    """
    needed: dict[str, float] = {}
    for rank, (room, node_id) in enumerate(zip(rooms, node_ids, strict=True)):
        stage, ward = ranks.stage_of(rank), ward_of(rank, holders, ranks)
        beside = room.change_bytes if ranks.widths[stage] == 1 else 0.0
        if ward is not None:
            kept = rooms[ranks.of_stage(ward)[0]]
            beside += kept.state_bytes + 2 * kept.change_bytes
        if room.accelerator_bytes == float("inf"):
            beside += room.state_bytes
        elif room.state_bytes > MOST_OF_MEMORY * room.accelerator_bytes:
            return _short(stage, room.state_bytes, room.accelerator_bytes, "its accelerator")
        needed[node_id] = needed.get(node_id, 0.0) + beside
        if needed[node_id] > MOST_OF_MEMORY * room.free_bytes:
            return _short(stage, needed[node_id], room.free_bytes, "its node")
    return ""


def _short(stage: int, needed_bytes: float, free_bytes: float, where: str) -> str:
    return (
        f"the worker of stage {stage} has no room for it: {needed_bytes / 1e6:,.0f} MB are needed, and "
        f"{free_bytes / 1e6:,.0f} MB are free on {where}"
    )


class ShadowPace:
    """Judges by the middle one of a generation's newest steps: ways that are too slow are so in each."""

    def __init__(self) -> None:
        self._steps, self._recent_s = 0, 0.0
        self._recent: deque[tuple[float, float]] = deque()

    def why_not(self, waited_s: Sequence[float], step_s: Sequence[float]) -> str:
        """Why shadows are to end after this step, in which each stage waited so long for them; "": they stay.

        The stage that waits longest holds the others up for as long.
        """
        self._steps += 1
        if self._steps <= _WARM_UP:
            return ""
        self._add(max(waited_s), max(step_s))
        if len(self._recent) < STEPS_JUDGED or self._recent_s < JUDGED_S:
            return ""
        share = median(waited / whole for waited, whole in self._recent)
        if share <= MOST_OF_A_STEP:
            return ""
        return (
            f"the ways between the workers are too slow for it: {share:.0%} of the middle one of "
            f"{len(self._recent)} steps went by in waiting, over {MOST_OF_A_STEP:.0%}"
        )

    def _add(self, waited_s: float, step_s: float) -> None:
        self._recent.append((waited_s, step_s))
        self._recent_s += step_s
        while len(self._recent) > STEPS_JUDGED and self._recent_s - self._recent[0][1] >= JUDGED_S:
            self._recent_s -= self._recent.popleft()[1]
