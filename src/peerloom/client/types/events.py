"""What happens to a job, one class for each kind of event."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from peerloom.client.types.job_plans import PredictedPlan
from peerloom.client.types.job_records import Accusation, ClientTotals, Dismissal, Evaluation
from peerloom.client.types.job_specs import Backend
from peerloom.client.types.jobs import FINAL_STATES, JobState, NodeAnswer, Worker
from peerloom.kit.quantity_texts import plural


@dataclass(frozen=True)
class JobEvent:
    """What all events share: their place in the job's log (from 1, growing), the job and the time."""

    sequence: int
    job_id: str
    time: datetime | None


@dataclass(frozen=True)
class StateChanged(JobEvent):
    """The job changed its state."""

    state: JobState
    reason: str

    @property
    def is_final(self) -> bool:
        """The job has ended with it: no event follows."""
        return self.state in FINAL_STATES

    def __str__(self) -> str:
        return f"{self.state}: {self.reason}" if self.reason else self.state


@dataclass(frozen=True)
class NodeAnswered(JobEvent):
    """A node answered a request for compute."""

    answer: NodeAnswer

    def __str__(self) -> str:
        return str(self.answer)


@dataclass(frozen=True)
class GenerationFormed(JobEvent):
    """A process group was formed; `workers` are in the order of their ranks, `first_step` is its first.

    `sync` says how each step is synchronised; empty in events of before there was a choice.
    """

    generation: int
    workers: tuple[Worker, ...]
    backend: Backend | None
    first_step: int
    sync: str = ""

    def __str__(self) -> str:
        nodes = ", ".join(worker.node_name for worker in self.workers)
        return (
            f"generation {self.generation}: {plural(len(self.workers), 'worker')} ({nodes}), {self.backend}"
        )


@dataclass(frozen=True)
class ClientPush:
    """A federated client's update: the `version` that it began with, and its `verdict`.

    That is "accepted", "merged" (it began with an older version), or "refused"; `weight` is its part of the
    mean change, 0 to 1.
    """

    client: int
    node_id: str
    version: int
    samples: int
    verdict: str
    weight: float
    reason: str

    def __str__(self) -> str:
        return f"client {self.client} from version {self.version} {self.verdict}: {self.reason}"


@dataclass(frozen=True)
class FederatedRound:
    """Which clients were `drawn` and why, the updates that came, and what has counted of all `clients`."""

    drawn: tuple[int, ...]
    reason: str
    pushes: tuple[ClientPush, ...]
    clients: tuple[ClientTotals, ...]

    def __str__(self) -> str:
        counted = sum(push.verdict != "refused" for push in self.pushes)
        late = "".join(f"; {push}" for push in self.pushes if push.verdict != "accepted")
        return f"drew {self.reason}; {f'{counted} updates count' if counted > 1 else '1 update counts'}{late}"


@dataclass(frozen=True)
class StalePush:
    """A part of a batch that a worker computed, by parameters that were `age` steps old.

    `version` is what it began with, `samples` are positions in the epoch's order (first, one past the last);
    `verdict` is "accepted", "merged" (it began with an older version), or "refused"; its gradient counts
    `weight` times, 0 to 1.
    """

    node_id: str
    version: int
    age: int
    samples: tuple[tuple[int, int], ...]
    verdict: str
    weight: float
    reason: str

    def __str__(self) -> str:
        places = ", ".join(f"{first} to {end}" for first, end in self.samples)
        return f"samples {places} by {self.node_id} from version {self.version} {self.verdict}: {self.reason}"


@dataclass(frozen=True)
class StaleStep:
    """The parts that a step took or refused, and the positions of its epoch that had `counted` before it."""

    pushes: tuple[StalePush, ...]
    counted: tuple[tuple[int, int], ...]

    @property
    def has_refused(self) -> bool:
        """Whether a part came too late."""
        return any(push.verdict == "refused" for push in self.pushes)

    def __str__(self) -> str:
        refused = [push for push in self.pushes if push.verdict == "refused"]
        taken = [push for push in self.pushes if push.verdict != "refused"]
        oldest = max((push.age for push in taken), default=0)
        age = f", up to {oldest} step{'s' * (oldest > 1)} old" if oldest else ""
        late = "".join(f"; {push}" for push in refused)
        return f"takes {len(taken)} part{'s' * (len(taken) > 1)}{age}{late}"


@dataclass(frozen=True)
class StepCommitted(JobEvent):
    """A step was committed: a batch, or a round of them where the job's `sync` has a period.

    `step` and `epoch` count from 1; `loss` is the mean over the step's `samples`; `step_s` is the whole
    step, with a script's own lines after it, `compute_s` and `communication_s` parts of it, in seconds;
    `metrics` is what a script logged, `generation` which one made it.
    `batch_shares` says how batches are divided from this step on, in proportion, by rank; empty: as before.
    `federated` says who took part, where the job is federated, and `stale` which parts it took, where the
    job's `sync` has a staleness or a backup.
    """

    step: int
    total_steps: int | None
    epoch: int
    loss: float
    samples: int
    samples_per_s: float
    step_s: float
    compute_s: float
    communication_s: float
    communicated_bytes: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    batch_shares: tuple[int, ...] = ()
    federated: FederatedRound | None = None
    stale: StaleStep | None = None
    generation: int = 0

    def __str__(self) -> str:
        total = f" of {self.total_steps}" if self.total_steps else ""
        logged = "".join(f", {name} {value:.4g}" for name, value in sorted(self.metrics.items()))
        return f"step {self.step}{total}: loss {self.loss:.4f}, {self.samples_per_s:,.0f} samples/s{logged}"


@dataclass(frozen=True)
class EpochFinished(JobEvent):
    """An epoch is complete: the `metric` over the test set's `test_samples`, the epoch's mean `loss`."""

    epoch: int
    metric_name: str
    metric: float
    loss: float
    test_samples: int

    def __str__(self) -> str:
        return f"epoch {self.epoch}: {self.metric_name} {self.metric:.4f}, loss {self.loss:.4f}"


@dataclass(frozen=True)
class WorkerLost(JobEvent):
    """A worker ended before the job did."""

    worker: Worker
    reason: str

    def __str__(self) -> str:
        return f"lost {self.worker.id} on {self.worker.node_name}: {self.reason}"


@dataclass(frozen=True)
class NodeAccused(JobEvent):
    """An owner found for the first time that a node sent something else than its work gives."""

    accusation: Accusation

    def __str__(self) -> str:
        one = self.accusation
        return (
            f"{one.owner} says that {one.node_name} lied in step {one.step}: {one.difference:.2g} apart from "
            "what its share gives"
        )


@dataclass(frozen=True)
class LiarDismissed(JobEvent):
    """A node was let go, as most owners found that it lied."""

    dismissal: Dismissal

    def __str__(self) -> str:
        return f"dismissed {self.dismissal.node_name}, which lied: {self.dismissal.reason}"


@dataclass(frozen=True)
class AuditsOff(JobEvent):
    """Work can't be computed again on a node, or, where `node_name` is empty, in the whole job."""

    node_name: str
    reason: str

    def __str__(self) -> str:
        where = f"{self.node_name} makes no audits" if self.node_name else "no audits"
        return f"{where}: {self.reason}"


@dataclass(frozen=True)
class GradientsRefused(JobEvent):
    """What a node sent isn't finite, as another worker says, and was left out; told once a generation."""

    generation: int
    step: int
    node_name: str
    worker_id: str

    def __str__(self) -> str:
        return f"left out what {self.node_name} sent in step {self.step}: it isn't finite"


@dataclass(frozen=True)
class SyncChanged(JobEvent):
    """From this generation on steps are synchronised by another `method` than the `former` one."""

    generation: int
    method: str
    former: str
    reason: str

    def __str__(self) -> str:
        return f"changes to {self.method}: {self.reason}"


@dataclass(frozen=True)
class PlanChosen(JobEvent):
    """From this generation on the model spreads over the workers by `plan`; `former` is "" for the first one.

    `predicted` is None where nothing could be predicted.
    """

    generation: int
    plan: str
    former: str
    reason: str
    predicted: PredictedPlan | None

    def __str__(self) -> str:
        return f"{'changes to' if self.former else 'takes'} plan {self.plan}: {self.reason}"


@dataclass(frozen=True)
class ModelEvaluated(JobEvent):
    """The trainer has looked at the job's model, or says why it hasn't."""

    evaluation: Evaluation

    def __str__(self) -> str:
        return f"model {self.evaluation}"
