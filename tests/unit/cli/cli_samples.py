"""Values that the command line's tests show, and a client that hands them out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from peerloom import (
    Artifact,
    Belief,
    BeliefTerms,
    BeliefWeights,
    EpochFinished,
    Evidence,
    ExplainedBelief,
    Job,
    JobEvent,
    JobResult,
    JobSpec,
    LogLine,
    Model,
    Node,
    NodeAnswer,
    NodeAnswered,
    PastChoice,
    Progress,
    ScoreTerm,
    StateChanged,
    StepCommitted,
)
from peerloom.cli.invocation import Invocation
from peerloom.client.types import JobState

TIME = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
JOB_ID = "job-0123456789ab"

NODE = Node(
    id="node-aaaaaaaaaaaa",
    name="node-1",
    address="127.0.0.1:5001",
    state="alive",
    reason="heartbeats arrive in time",
    slots=3,
    free_slots=2,
    accelerators=(),
    speed=None,
    labels={"room": "12"},
    draining=False,
    incarnation=1,
    registered_time=TIME,
    last_seen_time=TIME,
    online_s=75.0,
)
# By hand: score_new = 0.3*2 + 0.1*3 + 0.5*4 - 1*0.25 = 2.65; time_score = min(10, 1.5 + ln(0 + 1)) = 1.5;
# score_reduce = 1 + 2 - 1.5 = 1.5; belief = 2.65 + 1.5 - 1.5 = 2.65.
TERMS = BeliefTerms(
    score_old=2.0,
    transmissions=3,
    trainings=4,
    delay_s=0.25,
    ended_online_log=1.5,
    open_online_s=0.0,
    interruptions=1,
    unfinished=2,
    score_new=2.65,
    time_score=1.5,
    score_reduce=1.5,
    weights=BeliefWeights(score_old=0.3, transmission=0.1, train=0.5, delay=1.0, time_score_cap=10.0),
)
EVIDENCE = Evidence("e-1", NODE.id, "training", None, None, None, JOB_ID, "finished its part", TIME)
BELIEF = Belief(NODE.id, "node-1", 2.65, TERMS, 7, TIME, EVIDENCE)
NEW_BELIEF = Belief("node-bbbbbbbbbbbb", "node-2", 0.0, None, 0, None, None)
SPEC = JobSpec(
    task="digits",
    arguments={},
    requests=3,
    epochs=2,
    batch_size=64,
    learning_rate=0.1,
    policy="thesis",
    seed=0,
    min_workers=1,
    max_workers=None,
    backend="auto",
    name="",
    initial_model="",
    min_slots=1,
    accelerator="",
    labels={},
    sync="schedule=bsp,topology=ring,codec=none",
)
ANSWER = NodeAnswer(
    NODE.id, "node-1", NODE.address, 3, 2.65, "it has the highest belief", 2, "2 of 3 slots are free", 0.01
)
RESULTS = {
    "succeeded": JobResult(
        job_id=JOB_ID,
        state="succeeded",
        reason="",
        model=Artifact("ab" * 32, 12_345, "digits"),
        model_path="/state/model.safetensors",
        model_nodes=("node-1",),
        metric=0.9722,
        metric_name="accuracy",
        training_s=2.0,
        samples=4_000,
        samples_per_s=2_000.0,
        compute_s_per_step=0.010,
        communication_s_per_step=0.002,
        communicated_bytes=1_000,
    )
}
for _state in ("failed", "cancelled", "no_compute"):
    _nothing: dict[str, Any] = dict.fromkeys(
        (
            *("model", "model_path", "metric", "metric_name", "training_s", "samples", "samples_per_s"),
            *("compute_s_per_step", "communication_s_per_step", "communicated_bytes"),
        )
    )
    RESULTS[_state] = JobResult(
        job_id=JOB_ID,
        state=_state,  # type: ignore[arg-type]  # the three are states
        reason="the reason",
        model_nodes=(),
        **_nothing,
    )


def job(state: JobState) -> Job:
    """A job in this state."""
    progress = Progress(10, 20, 1, 2, 0.5, 2_000.0, 0.9722, "accuracy")
    result = RESULTS.get(state)
    return Job(
        JOB_ID, SPEC, state, "the reason", (ANSWER,), (), 1, "gloo", progress, result, TIME, TIME, TIME
    )


def events(ending: JobState) -> list[JobEvent]:
    """A short job's events."""
    return [
        StateChanged(1, JOB_ID, TIME, "selecting", ""),
        NodeAnswered(2, JOB_ID, TIME, ANSWER),
        StepCommitted(3, JOB_ID, TIME, 1, 20, 1, 0.5, 64, 2_000.0, 0.012, 0.01, 0.002, 100),
        EpochFinished(4, JOB_ID, TIME, 1, "accuracy", 0.9722, 0.5, 360),
        StateChanged(5, JOB_ID, TIME, ending, "the reason"),
    ]


@dataclass
class HandleDouble:
    """A job's handle; `interrupted` raises KeyboardInterrupt after the first event."""

    ending: JobState = "succeeded"
    interrupted: bool = False
    id: str = JOB_ID

    def watch(self, after: int = 0) -> Iterator[JobEvent]:
        for event in events(self.ending):
            if event.sequence > after:
                yield event
            if self.interrupted:
                raise KeyboardInterrupt

    def track(self, *places: str, tell: Callable[[str], object]) -> None:
        tell(f"told {' and '.join(places)}\x1b[2J")

    def status(self) -> Job:
        return job(self.ending)

    def cancel(self) -> Job:
        return job("cancelled")

    def logs(self, *, follow: bool = False, tail: int = 0) -> Iterator[LogLine]:
        yield LogLine("node-1", "worker-1", f"follow={follow} tail={tail}")


EXPLAINED = ExplainedBelief(
    BELIEF,
    "survival",
    [ScoreTerm("hazard", 0.5, "ends a day", "2.00 interruptions in 96.00 h online")],
    [PastChoice(None, "survival", False, "it was no candidate: draining: takes no new work")],
)


@dataclass
class ClientDouble:
    """Answers from memory and keeps what it was asked; `error` is raised by every call."""

    handle: HandleDouble = field(default_factory=HandleDouble)
    found_nodes: tuple[Node, ...] = (NODE,)
    found_model: Model | None = None
    explained: ExplainedBelief = EXPLAINED
    artifacts: Any = field(default_factory=lambda: SimpleNamespace(where=lambda digest: ()))
    error: BaseException | None = None
    asked: dict[str, Any] = field(default_factory=dict)

    def __enter__(self) -> "ClientDouble":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., Any]:
        answers: dict[str, Any] = {
            "nodes": list(self.found_nodes),
            "node": NODE,
            "drain": NODE,
            "sessions": [],
            "beliefs": [BELIEF, NEW_BELIEF],
            "belief": BELIEF,
            "belief_history": [BELIEF],
            "explain_belief": self.explained,
            "policies": [],
            "models": [],
            "model": self.found_model,
            "jobs": [job("running")],
            "job": self.handle,
            "train": self.handle,
            "services": [],
            "fetch_model": Path("there.safetensors"),
        }
        if name not in answers:
            raise AttributeError(name)

        def answer(*args: Any, **kwargs: Any) -> Any:
            self.asked[name] = (args, kwargs)
            if self.error is not None:
                raise self.error
            return answers[name]

        return answer


class InvocationDouble(Invocation):
    """Hands out the double; still filled by the flags."""

    def __init__(self, client: ClientDouble) -> None:
        super().__init__()
        self._double = client

    def client(self) -> Any:
        return self._double
