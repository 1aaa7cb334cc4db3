"""What is kept of a job beside its progress: whom it asked, the samples it used, what its network carried."""

from dataclasses import dataclass
from typing import Literal

EvaluationVerdict = Literal["agrees", "differs", "not evaluated"]


@dataclass(frozen=True)
class LedgerStretch:
    """Consecutive steps of one generation and the samples they used, as positions in the epochs' orders.

    Steps and epochs count from 1 and include both ends; positions count from 0, and `end_sample` is one past
    the last. Many old generations may be put together: `generation` is the first, `last_generation` the last.
    """

    generation: int
    last_generation: int
    workers: int
    first_step: int
    last_step: int
    first_epoch: int
    first_sample: int
    last_epoch: int
    end_sample: int


@dataclass(frozen=True)
class ClientTotals:
    """What became of a federated client's updates: how many counted or were refused, with their samples.

    A sample counts each time that the client has trained on it.
    """

    client: int
    updates: int
    samples: int
    refused_updates: int
    refused_samples: int

    def __str__(self) -> str:
        counted = "1 update" if self.updates == 1 else f"{self.updates} updates"
        refused = f", {self.refused_updates} refused" if self.refused_updates else ""
        return f"{self.client}: {counted} with {self.samples:,} samples{refused}"


@dataclass(frozen=True)
class StaleTotals:
    """What became of parts of batches: how many counted, those of them that began with an older version.

    They were at most `oldest` steps old; `refused` came too late, and were handed out again.
    """

    parts: int
    merged: int
    oldest: int
    refused: int
    refused_samples: int


@dataclass(frozen=True)
class Ledger:
    """Which samples the committed steps used. `is_exact`: each one once; else `verdict` says what is wrong.

    `discarded_samples` were used in steps that were lost with all workers, and were used again. A federated
    job has `clients`: its stretches count samples of updates from the job's beginning, and `is_exact` says
    that each update counted once. With a staleness or a backup samples count in any order: `counted` are the
    positions of the epoch under way that have, and `stale` tells of the parts.
    """

    is_exact: bool
    verdict: str
    training_samples: int
    discarded_samples: int
    stretches: tuple[LedgerStretch, ...]
    clients: tuple[ClientTotals, ...] = ()
    counted: tuple[tuple[int, int], ...] = ()
    stale: StaleTotals | None = None


@dataclass(frozen=True)
class Accusation:
    """The first word of an owner that a node lied: its share of `step` was computed again on another node.

    `difference` is how far apart what was sent and what was computed are, as a part of the latter's norm.
    """

    worker_id: str
    owner: str
    node_id: str
    node_name: str
    step: int
    difference: float


@dataclass(frozen=True)
class Dismissal:
    """A node whose workers were let go, and which isn't asked again for the job: most owners accused it."""

    node_id: str
    node_name: str
    reason: str
    accusations: tuple[Accusation, ...]


@dataclass(frozen=True)
class AuditReport:
    """What came of computing shares again: how many were, who was accused of a lie, and who was dismissed.

    `accusations` are those of nodes that weren't dismissed; `off` says where work can't be computed again.
    """

    made: int
    accusations: tuple[Accusation, ...]
    dismissals: tuple[Dismissal, ...]
    off: tuple[str, ...]


@dataclass(frozen=True)
class LinkTraffic:
    """What passed between a node of an emulated network and its host; `host` is empty where none is."""

    host: str
    node: int
    sent_bytes: int
    sent_packets: int
    received_bytes: int
    received_packets: int
    dropped_packets: int


@dataclass(frozen=True)
class ModelStage:
    """Consecutive layers of a model, `first_layer` to `end_layer`, one past the last, that one worker holds.

    `number` is from 0; `first_name` and `last_name` are layers, `parameters` the numbers that it trains. Of
    the stage's `workers`, which take turns at micro-batches, this one is number `turn`, from 0. Where layers
    are cut in `pieces` it has number `piece` of each, and `exchange_s` are predicted to go by with exchanges
    of a step, beside `compute_s` of computing; 0: not known.
    """

    number: int
    first_layer: int
    end_layer: int
    first_name: str
    last_name: str
    parameters: int
    workers: int = 1
    turn: int = 0
    pieces: int = 1
    piece: int = 0
    exchange_s: float = 0.0
    compute_s: float = 0.0

    def __str__(self) -> str:
        layers = self.end_layer - self.first_layer
        which = f"layer {self.first_name}" if layers == 1 else f"layers {self.first_name} to {self.last_name}"
        turn = f", worker {self.turn + 1} of {self.workers}" if self.workers > 1 else ""
        piece = f", piece {self.piece + 1} of {self.pieces}" if self.pieces > 1 else ""
        return f"{which}, {self.parameters:,} parameters{turn}{piece}"


@dataclass(frozen=True)
class StageShadow:
    """A copy of another stage's state, with its optimiser, that a worker keeps; `stage` is from 0.

    `step` is the newest one that it can give the state of; with what waits to change it, it has `size_bytes`.
    `why_not` says why none is kept; it is empty where one is.
    """

    stage: int
    step: int
    size_bytes: int
    why_not: str


@dataclass(frozen=True)
class NetworkTraffic:
    """What an emulated network carried while a job ran, in `seconds`.

    `lag_worst_s` is how far the emulation was behind the wall clock at its worst, None where nothing can lag;
    beyond `lag_bound_s`, times measured in the job are the emulation's own.
    """

    backend: str
    medium: str
    seconds: float
    lag_worst_s: float | None
    lag_bound_s: float
    links: tuple[LinkTraffic, ...]


@dataclass(frozen=True)
class Evaluation:
    """The trainer's own look at a finished job's model: the metric that it found beside the workers'.

    "differs" failed the job; "not evaluated" leaves the metric the workers' word, and `reason` says why.
    `reason_code` is for programs, empty where it agrees. `told`, `found` and `metric_name` are None where
    there was none. The two may be `tolerance` apart, as rounding turns samples near a tie.
    """

    verdict: EvaluationVerdict
    reason: str
    reason_code: str
    told: float | None
    found: float | None
    metric_name: str | None
    test_samples: int
    tolerance: float
    evaluation_s: float

    def __str__(self) -> str:
        return f"{self.verdict}: {self.reason.removeprefix('not evaluated: ')}"


@dataclass(frozen=True)
class PredictedStep:
    """A step's seconds by the model of the network, and its parts."""

    step_s: float
    compute_s: float
    exposed_s: float
    compression_s: float


@dataclass(frozen=True)
class SyncInUse:
    """What the trainer chose for a job with `sync` "auto", and why.

    `predicted` is None until the network was measured. The measured figures are medians over the last steps,
    in seconds, None while there are too few; so is `runner_up`, the method that is expected to be next, with
    its step. `changes` counts how often the method was changed.
    """

    method: str
    reason: str
    predicted: PredictedStep | None
    measured_step_s: float | None
    measured_compute_s: float | None
    measured_communication_s: float | None
    runner_up: str | None
    runner_up_step_s: float | None
    changes: int

    def __str__(self) -> str:
        return f"{self.method}: {self.reason}"


@dataclass(frozen=True)
class NotChosen:
    """Nodes that weren't chosen for one reason: how many, and the names of the first few."""

    reason: str
    count: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        more = ", …" if self.examples and self.count > len(self.examples) else ""
        named = f" ({', '.join(self.examples)}{more})" if self.examples else ""
        return f"{self.count}{named}: {self.reason}"


@dataclass(frozen=True)
class NodeChoice:
    """Whom the selector named when nodes were asked last: `chosen` of `candidates`, at most `requests`.

    `passed_over` are candidates that others were preferred to, the best of them first, then, reason by
    reason, the nodes that were no candidates.
    """

    policy: str
    requests: int
    chosen: int
    candidates: int
    passed_over: tuple[NotChosen, ...]

    def __str__(self) -> str:
        return f"{self.chosen} of {self.candidates} candidates by {self.policy}"


@dataclass(frozen=True)
class ScriptRun:
    """What of a script failed last: the first process to fail of the newest generation in which one did.

    `restarts` is how often the script was started again for such failures; `exit_status` is from 1 to 255, or
    minus the signal that killed it; `last_lines` are the end of its standard error.
    """

    restarts: int
    rank: int
    node_name: str
    exit_status: int
    last_lines: str
