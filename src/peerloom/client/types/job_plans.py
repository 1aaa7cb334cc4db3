"""Plans that the trainer chose for a job, as they were predicted and measured."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PredictedStage:
    """What a stage of a plan is predicted to do in a step.

    It has the layers `first_layer` to `last_layer` on slots of these `nodes`, and computes for `computing_s`
    seconds; `idle_ratio` is the rest of the step. `needed_bytes` of `memory_bytes` are those of the slot that
    has least left.
    """

    first_layer: int
    last_layer: int
    nodes: tuple[str, ...]
    computing_s: float
    idle_ratio: float
    needed_bytes: int
    memory_bytes: int


@dataclass(frozen=True)
class PredictedPlan:
    """A step of `step_s` seconds without interruptions, and what is finished a second with those expected.

    `binds` says what would shorten a step most at twice its speed.
    """

    step_s: float
    samples_per_s: float
    binds: str
    stages: tuple[PredictedStage, ...]


@dataclass(frozen=True)
class PlanInUse:
    """The plan that the trainer chose for a job whose `plan` is "auto", as `Client.train` takes it, and why.

    `predicted` is None where nothing could be predicted, and `measured_step_s`, the median over the last
    steps, None after too few of them; `changes` is how often the plan was changed.
    """

    plan: str
    reason: str
    predicted: PredictedPlan | None
    measured_step_s: float | None
    changes: int
