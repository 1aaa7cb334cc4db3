"""What must hold when a history is over and all that was broken works again."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from peerloom.errors import PeerloomError
from peerloom.kit.limits import ENDED_STATES
from peerloom.testing.memory_network import KEEPALIVE_S
from peerloom.testing.scripted_starter import is_worker
from peerloom.testing.scripted_state import ScriptedState
from peerloom.testing.service_wiring import REGISTRY_CONFIG, sample_verdict
from peerloom.v1.selector_pb2 import EvidenceKind
from peerloom.v1.trainer_pb2 import EvaluationVerdict, Job, JobState, WatchJobResponse
from tests.simulation.faults import Fault
from tests.simulation.fingerprints import FINGERPRINTS
from tests.simulation.wall_clocks import right_s, wrong_times

if TYPE_CHECKING:
    from tests.simulation.simulate import Simulation

_INTERRUPTED, _LEFT = 5, 4
# A registry that is killed, frozen or cut from its database passes on, and nobody dies of that.
_CAUSES = frozenset(
    {
        *("kill", "stop", "freeze", "cut", "cut one way", "isolate", "reset", "slow", "slow disk"),
        *("full disk", "isolate leader"),
    }
)
# Who starts while its database is away ends, and is started again.
_OF_STORAGE = frozenset(
    {"full disk", "cut leader from database", "isolate leader", "lose answers of database"}
)
_CAUSE_S = 12.0  # a fault explains a death so long after its end
_UNHEARD = "nothing was heard of it for too long"
_HIDE_ENDS = frozenset({"cut", "cut one way", "isolate", "isolate leader", "freeze", "freeze leader"})
_SPEAKS_AGAIN_S = 6.0  # so long after a fault's end all are connected again


def check(simulation: "Simulation") -> Iterator[str]:
    """Each promise that is broken, in a sentence."""
    yield from _crashes(simulation)
    yield from _registry(simulation)
    yield from _selector(simulation)
    yield from _trainer(simulation)
    yield from wrong_times(simulation)


def settled(simulation: "Simulation") -> Iterator[str]:
    """What isn't yet as it should be when nothing goes wrong any more."""
    world = simulation.world
    for name, process in world.processes.items():
        if is_worker(process) and process.is_running:
            yield f"{name} still runs"
    if world.observed.slots:
        yield f"slots are taken: {world.observed.slots}"
    if _rows(simulation, "trainer", "select count(*) from evidence_outbox")[0][0]:
        yield "evidence waits"
    newest = _rows(simulation, "registry", "select coalesce(max(sequence), 0) from events")[0][0]
    followed = _rows(simulation, "selector", "select coalesce(max(sequence), 0) from cursor")[0][0]
    if newest != followed:
        yield f"the selector has read {followed} of the registry's {newest} events"
    alive = {name for (name,) in _rows(simulation, "registry", "select name from nodes where state = 1")}
    yield from (f"{name} isn't alive" for name in simulation.plan.names if name not in alive)


def states(simulation: "Simulation") -> list[str]:
    """How each job stands."""
    rows = _rows(simulation, "trainer", "select record from jobs order by number")
    jobs = [Job.FromString(record) for (record,) in rows]
    return [f"{job.job_id} {JobState.Name(job.state)[10:]}: {job.state_reason}" for job in jobs]


def _rows(simulation: "Simulation", service: str, query: str, *values: object) -> list[tuple[Any, ...]]:
    connection: sqlite3.Connection = simulation.world.processes[service].disk.databases[service]
    return connection.execute(query, values).fetchall()


def _crashes(simulation: "Simulation") -> Iterator[str]:
    failing = any(fault.kind in _OF_STORAGE for fault in simulation.world.observed.disturbances)
    simulation.world.note_unseen_errors()
    for where, error in simulation.world.crashes:
        is_deposed = "does not hold the lease" in str(error)
        if not (failing and isinstance(error, PeerloomError)) and not is_deposed:
            yield f"{where}: {type(error).__name__}: {error}"


def _registry(simulation: "Simulation") -> Iterator[str]:
    events = _rows(
        simulation, "registry", "select sequence, kind, node_id, time_s, reason from events order by sequence"
    )
    if [row[0] for row in events] != list(range(1, len(events) + 1)):
        yield "the registry's log has gaps"
    sessions = _rows(simulation, "registry", "select request_id, session_id, node_id, end_s from sessions")
    stored = {request_id: (node_id, session_id) for request_id, session_id, node_id, _ in sessions}
    for request_id, got in simulation.world.observed.registrations.items():
        if stored.get(request_id) != got:
            yield f"the acknowledged registration {request_id} is lost"
    still_open = Counter(node_id for _, _, node_id, end_s in sessions if end_s is None)
    yield from (f"{node_id} has {count} open sessions" for node_id, count in still_open.items() if count > 1)
    watched = simulation.node_watch
    if watched.wrong:
        yield f"a watch of the nodes: {watched.wrong}"
    if watched.last > len(events):
        yield f"a watcher saw event {watched.last} of the registry, which has {len(events)}"
    names: dict[str, str] = dict(_rows(simulation, "registry", "select node_id, name from nodes"))  # type: ignore[arg-type]  # rows of two
    for sequence, kind, node_id, time_s, reason in events:
        if kind == _INTERRUPTED and not _explains(
            simulation, names[node_id], right_s(simulation, "registry", time_s)
        ):
            yield f"event {sequence}: {names[node_id]} was declared dead without a cause: {reason}"


def _explains(simulation: "Simulation", node: str, at_s: float) -> bool:
    disturbances = simulation.world.observed.disturbances
    for fault in disturbances:
        if fault.kind in _CAUSES and fault.at_s <= at_s <= _noticed_until_s(fault, disturbances):
            is_restart = fault.kind == "kill" and fault.targets[0] != node
            if not is_restart and {node, "registry"} & set(fault.targets):
                return True
    return at_s < (REGISTRY_CONFIG.heartbeat_interval_s or 0.0)


def _noticed_until_s(fault: Fault, disturbances: Sequence[Fault]) -> float:
    """Until when the registry notices what a fault did: later, where others keep it from that meanwhile."""
    end_s = fault.at_s + fault.lasts_s + _CAUSE_S
    for other in sorted(disturbances, key=lambda each: each.at_s):
        if "registry" in other.targets and other.at_s <= end_s:
            end_s = max(end_s, other.at_s + other.lasts_s + _CAUSE_S)
    return end_s


def _selector(simulation: "Simulation") -> Iterator[str]:
    rows = _rows(
        simulation, "selector", "select evidence_id, node_id, kind, time_s, job_id, detail from evidence"
    )
    stored = {row[0] for row in rows}
    lost = [fact for fact in simulation.world.observed.evidence_ids if fact not in stored]
    if lost:
        yield f"acknowledged evidence is lost: {lost[:3]}"
    alike = Counter(row[1:] for row in rows if row[4])
    yield from (f"evidence counts {count} times: {fact}" for fact, count in alike.items() if count > 1)
    per_node, per_history = (
        Counter(row[1] for row in rows),
        Counter(row[0] for row in _rows(simulation, "selector", "select node_id from history")),
    )
    for node_id, updates in _rows(simulation, "selector", "select node_id, updates from beliefs"):
        if not updates == per_node[node_id] == per_history[node_id]:
            yield f"{updates} updates of {node_id}'s belief by {per_node[node_id]} facts"
    told = [row[0] for row in rows if row[0].startswith("registry/")]
    ends = _rows(
        simulation, "registry", "select sequence from events where kind in (?, ?)", _INTERRUPTED, _LEFT
    )
    if sorted(int(fact.rpartition("/")[2]) for fact in told) != sorted(row[0] for row in ends):
        yield f"of {len(ends)} ends of sessions {len(told)} are evidence"


def _trainer(simulation: "Simulation") -> Iterator[str]:
    rows = _rows(simulation, "trainer", "select job_id, request_id, record, last_sequence from jobs")
    jobs = {job_id: Job.FromString(record) for job_id, _, record, _ in rows}
    submitted = simulation.world.observed.submitted
    yield from (f"the submitted {job_id} is lost" for job_id in submitted.values() if job_id not in jobs)
    yield from (f"nobody submitted {job_id}" for job_id in jobs if job_id not in submitted.values())
    for number, job in enumerate(simulation.jobs):
        if job is not None and job.job_id in jobs:
            watched = simulation.job_watches[number]
            yield from (f"{job.job_id}: {text}" for text in _job(simulation, jobs[job.job_id], watched))
    if left := _rows(simulation, "trainer", "select count(*) from evidence_outbox")[0][0]:
        yield f"{left} facts were never told to the selector"


def _job(simulation: "Simulation", job: Job, watched: Any) -> Iterator[str]:
    query = "select sequence, event from job_events where job_id = ? order by sequence"
    events = [
        (number, WatchJobResponse.FromString(data))
        for number, data in _rows(simulation, "trainer", query, job.job_id)
    ]
    if [number for number, _ in events] != list(range(1, len(events) + 1)):
        yield "its log has gaps"
    if watched.wrong:
        yield f"a watch: {watched.wrong}"
    for number, event in events:
        if watched.events.get(number) != event.SerializeToString(deterministic=True):
            yield f"a watcher did not see event {number} as it is stored"
            break
    if watched.last > len(events):
        yield f"a watcher saw event {watched.last}, and {len(events)} are stored"
    if job.state not in ENDED_STATES:
        yield f"its state is {JobState.Name(job.state)}"
        return
    dishonest = ("a bug", "no result can be trusted", "isn't what its workers told of")
    if any(words in job.state_reason for words in dishonest):  # nobody lies here
        yield job.state_reason
    last = events[-1][1].state_change
    if (last.state, last.reason) != (job.state, job.state_reason):
        yield "its last event isn't its end"
    yield from (f"{worker.worker_id} did not end" for worker in job.workers if not worker.ended)
    told = [event for _, event in events]
    yield from _steps(told)
    yield from _given_up(simulation, told)
    if job.state == JobState.JOB_STATE_SUCCEEDED:
        yield from _success(simulation, job)
        yield from _evaluation(job, told)


def _given_up(simulation: "Simulation", events: list[WatchJobResponse]) -> Iterator[str]:
    """No worker is given up that lives, and that nothing has kept from speaking for a while."""
    observed = simulation.world.observed
    for event in events:
        if not event.HasField("worker_lost") or event.worker_lost.reason != _UNHEARD:
            continue
        worker_id = event.worker_lost.worker.worker_id
        at_s = right_s(simulation, "trainer", event.time.ToNanoseconds() / 1e9)
        if observed.ended_s.get(worker_id, 0.0) >= at_s and not _is_disturbed(observed.disturbances, at_s):
            yield f"{worker_id} was given up at {at_s:.3f} s, though it lives and could be heard"


def _is_disturbed(disturbances: Sequence[Fault], at_s: float) -> bool:
    """Whether somebody may still not have heard of the others again."""
    # Over a cut nobody hears that the other side is gone before keepalive finds out.
    least_s = max(KEEPALIVE_S) + 1.0 if any(fault.kind in _HIDE_ENDS for fault in disturbances) else 0.0
    return any(
        fault.at_s <= at_s <= fault.at_s + max(fault.lasts_s + _SPEAKS_AGAIN_S, least_s)
        for fault in disturbances
    )


def _steps(events: list[WatchJobResponse]) -> Iterator[str]:
    """Steps follow each other, and no generation works when a later one has.

    A generation that has met and made no step yet takes nothing from the one before: a worker that did not
    hear of it works on, and the next begins where that one is.
    """
    newest = working = last = 0
    for event in events:
        if event.HasField("generation_formed"):
            formed = event.generation_formed
            if formed.generation <= newest:
                yield f"generation {formed.generation} was formed after {newest}"
            newest, last = formed.generation, min(last, formed.first_step)
        elif event.HasField("step"):
            step = event.step
            if step.step != last + 1:
                yield f"step {step.step} was told after step {last}"
            if step.generation < working:
                yield f"step {step.step} of generation {step.generation} came when {working} had worked"
            working, last = max(working, step.generation), step.step


def _evaluation(job: Job, events: list[WatchJobResponse]) -> Iterator[str]:
    """No job succeeds without a look at its model, or a word that says why there was none."""
    verdicts = EvaluationVerdict
    if job.evaluation.verdict == verdicts.EVALUATION_VERDICT_AGREES:
        if job.evaluation.found != job.progress.metric:
            yield f"its model scores {job.evaluation.found}, and {job.progress.metric} was told"
    elif job.evaluation.verdict != verdicts.EVALUATION_VERDICT_NOT_EVALUATED or not job.evaluation.reason:
        yield "it succeeded, its model was not evaluated, and nobody says why"
    if not any(event.evaluation == job.evaluation for event in events if event.HasField("evaluation")):
        yield "no event tells of its model's evaluation"


def _success(simulation: "Simulation", job: Job) -> Iterator[str]:
    is_exact, verdict = sample_verdict(job)
    if not is_exact:
        yield f"its ledger: {verdict}"
    path = simulation.world.processes["trainer"].disk.folder / "artifacts" / job.result.model.digest
    if not path.exists():
        yield "its model is not where the trainer keeps models"
        return
    state = ScriptedState.from_bytes(path.read_bytes())
    per_epoch = -(-FINGERPRINTS.samples // job.spec.batch_size)
    expected = [
        (epoch, first, min(first + job.spec.batch_size, FINGERPRINTS.samples))
        for epoch in range(1, job.spec.epochs + 1)
        for first in range(0, FINGERPRINTS.samples, job.spec.batch_size)
    ]
    if [step[:3] for step in state.trail] != expected:
        yield f"its model was made of other samples than asked for: {json.dumps(state.trail)[:300]}"
    if wrong := _not_the_ledgers(job, state):
        yield f"its model was made by other generations than its ledger tells: {wrong[:3]}"
    if job.progress.step != per_epoch * job.spec.epochs or job.progress.epoch != job.spec.epochs:
        yield f"its record tells of step {job.progress.step} and epoch {job.progress.epoch}"
    kind = EvidenceKind.EVIDENCE_KIND_TRAINING
    query = "select node_id, count(*) from evidence where job_id = ? and kind = ? group by node_id"
    trained = dict(_rows(simulation, "selector", query, job.job_id, kind))
    if not trained or any(count > 1 for count in trained.values()):
        yield f"its end was counted as {trained}"


def _not_the_ledgers(job: Job, state: ScriptedState) -> list[str]:
    """The model's steps of generations that the ledger doesn't tell of them."""
    return [
        f"step {number} of generation {by}"
        for number, (_, _, _, by) in enumerate(state.trail, 1)
        if not any(
            stretch.first_step <= number <= stretch.last_step
            and stretch.generation <= by <= stretch.last_generation
            for stretch in job.ledger.stretches
        )
    ]
