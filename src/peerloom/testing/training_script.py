"""How a scripted training goes: how long it takes, what it learns, and what goes wrong."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from peerloom.testing.scripted_state import ScriptedState


def _falling_loss(step: int) -> float:
    return 1.0 / step


def _rising_metric(epoch: int) -> float:
    return 1.0 - 0.5**epoch


@dataclass(frozen=True)
class TrainingScript:
    """Nothing is computed: steps take time, and their figures are those given here.

    `samples` (1 or more) is the size of the training set; with the job's batch size and epochs it says how
    many steps there are. Loading takes between the two times `load_s`, a step between the two `step_s`, in
    virtual seconds. `loss` is given the step, `metric` the epoch, both from 1. `fails_at` is the step that
    ends the job as a failure with `reason` (0: none); `loses` names steps at which, once, the worker of a
    rank dies: {5: 1} kills rank 1 in the fifth.
    """

    samples: int = 120
    load_s: tuple[float, float] = (0.05, 0.4)
    step_s: tuple[float, float] = (0.03, 0.12)
    loss: Callable[[int], float] = _falling_loss
    metric: Callable[[int], float] = _rising_metric
    metric_name: str = "accuracy"
    fails_at: int = 0
    reason: str = "the script says so"
    loses: Mapping[int, int] = field(default_factory=dict)

    def score(self, state: ScriptedState) -> float:
        """The metric of a model."""
        return self.metric(state.evaluated)


class Scripts:
    """The scripts by tasks' names; any other task follows `default`."""

    def __init__(self, default: TrainingScript | None = None) -> None:
        self.default = default or TrainingScript()
        self.by_task: dict[str, TrainingScript] = {}
        self._lost: set[tuple[str, int]] = set()

    def of(self, task: str) -> TrainingScript:
        """The script of a task."""
        return self.by_task.get(task, self.default)

    def is_lost(self, job_id: str, step: int, rank: int, task: str) -> bool:
        """Whether the worker of this rank dies in this step; True once for a job and step."""
        if self.of(task).loses.get(step) != rank or (job_id, step) in self._lost:
            return False
        self._lost.add((job_id, step))
        return True
