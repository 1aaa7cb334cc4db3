"""Asking nodes for slots, watching those that gave some, and finding replacements; the nodes are stubs."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from trainer_room import DEADLINE_S, Agent, Room, settle, until

from peerloom.errors import UnavailableError
from peerloom.services.trainer.generations.planning import JobPlanner
from peerloom.services.trainer.generations.sync_tuning import SyncTuner
from peerloom.services.trainer.jobs.record import JobRecord
from peerloom.services.trainer.models.checkpoints import CheckpointKeeper
from peerloom.services.trainer.nodes.replacing import JobNodes
from peerloom.services.trainer.workers.accusations import AuditKeeper
from peerloom.services.trainer.workers.pool import WorkerPool
from peerloom.services.trainer.workers.rendezvous import Rendezvous
from peerloom.services.trainer.workers.sessions import WorkerSessions
from peerloom.services.trainer.workers.state import Lost
from peerloom.v1.node_agent_pb2 import (
    Refusal,
    RequestWorkRequest,
    RequestWorkResponse,
    WatchWorkersResponse,
    WorkerProcess,
)
from peerloom.v1.selector_pb2 import Exclusion
from peerloom.v1.trainer_pb2 import Backend, JobState, LiarDismissed, WatchJobResponse


@dataclass
class Parts:
    """A job's nodes with its pool."""

    room: Room
    record: JobRecord
    nodes: JobNodes
    pool: WorkerPool


class Silent(Agent):
    """Hears requests for work and never answers."""

    async def _request_work(self, request: RequestWorkRequest) -> RequestWorkResponse:
        self.asked.append(request)
        await asyncio.Event().wait()
        raise AssertionError("nobody sets that event")


class Sessions(WorkerSessions):
    """Nobody writes here, so a worker is let in before its secret is stored."""

    async def admit(self, worker_ids: Sequence[str], node_id: str) -> list[str]:
        return ["5" * 64 for _ in worker_ids]


def parts(*agents: Agent, **spec: object) -> Parts:
    room = Room(*agents)
    record = room.new_record(**{"batch_size": 10, **spec})
    witness = room.witness(record)
    pool = WorkerPool(record, room.router, witness, room.clock)
    checkpoints = CheckpointKeeper(record, room.collector, room.clock)
    audits = AuditKeeper(record, pool, witness)
    rendezvous = Rendezvous(pool.send)
    planner = JobPlanner(record, checkpoints, room.clock, 10.0)
    hears = (rendezvous, audits, SyncTuner(record, room.clock), planner)
    sessions = Sessions(record, pool, checkpoints, room.router, *hears, room.clock, 10.0)
    return Parts(room, record, JobNodes(record, pool, sessions, room.recruiter, witness), pool)


@asynccontextmanager
async def watched(agent: Agent) -> AsyncIterator[Parts]:
    """A job's nodes that have recruited this agent, and watch it meanwhile."""
    made = parts(agent)
    await made.nodes.recruit()
    watching = asyncio.create_task(made.nodes.watch_forever())
    yield made
    watching.cancel()


def blamed(made: Parts) -> list[tuple[str, str]]:
    change = made.record.take_change()
    return [(fact.node_id, fact.detail) for fact in change.evidence] if change else []


async def test_slots_are_taken_in_the_order_of_the_ranking_until_there_are_enough() -> None:
    ada, bob, eve = Agent("ada", 2), Agent("bob", 2), Agent("eve", 2)
    made = parts(ada, bob, eve, max_workers=3)
    assert await made.nodes.recruit() == ""
    assert [len(agent.started) for agent in (ada, bob, eve)] == [2, 1, 0]
    assert eve.stopped == ["job-1"], "what isn't used is given back"
    job = made.record.job
    assert [(a.node.name, a.accepted_slots) for a in job.answers] == [("ada", 2), ("bob", 2), ("eve", 2)]
    assert [each.node_name for each in job.workers] == ["ada", "ada", "bob"]
    assert (job.state, job.backend) == (JobState.JOB_STATE_STARTING, Backend.BACKEND_GLOO)
    assert job.state_reason == "6 slots on the nodes that accepted, with gloo: not every slot is a GPU"
    assert made.pool.count() == 3


async def test_whom_the_selector_passed_over_is_kept_with_the_job() -> None:
    made = parts(Agent("ada", 1), request_budget=1)
    made.room.neighbours.passed_over = {
        "policy": "thesis",
        "candidates": 2,
        "exclusions": [Exclusion(reason="draining", count=2, examples=["fay", "gus"])],
        "outranked": Exclusion(reason="others ranked higher", count=1, examples=["dan"]),
    }
    await made.nodes.recruit()
    choice = made.record.job.choice
    assert (choice.policy, choice.request_budget, choice.chosen, choice.candidates) == ("thesis", 1, 1, 2)
    assert [
        (one.count, one.reason, list(one.examples)) for one in (*choice.exclusions, choice.outranked)
    ] == [
        (2, "draining", ["fay", "gus"]),
        (1, "others ranked higher", ["dan"]),
    ]


async def test_refusals_for_lack_of_means_and_silence_are_evidence() -> None:
    busy = Agent("ada", 0, refusal=Refusal.REFUSAL_BUSY)
    drains = Agent("bob", 0, refusal=Refusal.REFUSAL_DRAINING)
    made = parts(busy, drains, Agent("eve", is_away=True))
    assert await made.nodes.recruit() == "none of 3 nodes asked could give a slot"
    assert blamed(made) == [
        ("node-ada", "refused work: no slot is free"),
        ("node-eve", "did not answer a request for work: eve is away"),
    ]


async def test_who_took_work_and_did_not_start_it_is_to_blame() -> None:
    made = parts(Agent("ada", 1), Agent("bob", 1, fails_to_start=True), min_workers=2)
    assert await made.nodes.recruit() == "1 worker could be started, fewer than 2"
    assert blamed(made) == [("node-bob", "took work and did not start it: no process could be started")]


async def test_no_node_to_ask_is_told_with_the_reason() -> None:
    made = parts()
    reason = await made.nodes.recruit()
    assert reason == "the selector found no node to ask (no node has registered)"


async def test_a_selector_that_is_away_is_waited_for_and_said_once() -> None:
    made = parts(Agent("ada", 1))
    made.room.neighbours.selector_is_away = True
    recruiting = asyncio.create_task(made.nodes.recruit())
    record = made.record
    await until(lambda: record.job.state_reason.startswith("waiting for the selector: "))
    made.room.neighbours.selector_is_away = False
    async with asyncio.timeout(DEADLINE_S):
        assert await recruiting == ""
    change = record.take_change()
    assert change is not None
    states = [event.state_change.state for event in change.events if event.HasField("state_change")]
    assert states.count(JobState.JOB_STATE_QUEUED) == 1


async def test_a_new_round_forgets_the_one_before() -> None:
    made = parts(Agent("ada", 1))
    await made.nodes.recruit()
    await made.nodes.recruit()
    job = made.record.job
    assert (len(job.answers), len(job.workers)) == (1, 1)


async def test_an_agent_tells_of_a_process_that_died() -> None:
    ada = Agent("ada", 2)
    async with watched(ada) as made:
        first, second = ada.started
        ada.end(first, -9)
        ada.end(second, 3)
        await until(lambda: all(isinstance(state.phase, Lost) for state in made.pool.states()))
        reasons = [each.end_reason for each in made.record.job.workers]
        assert reasons == ["its process was killed by signal 9", "its process ended with status 3"]


async def test_a_node_whose_agent_is_away_is_watched_again() -> None:
    ada = Agent("ada", 1)
    async with watched(ada) as made:
        async with asyncio.timeout(DEADLINE_S):
            await ada.watched.wait()
            ada.watched.clear()
            ada.ends.put_nowait(UnavailableError("the agent was killed"))
            await ada.watched.wait()
            (worker,) = made.pool.states()
            assert worker.contact.is_agent_away
            started = WatchWorkersResponse(worker=WorkerProcess(worker_id=worker.worker_id))
            ada.ends.put_nowait(started)
        await until(lambda: not made.pool.states()[0].contact.is_agent_away)


async def test_who_went_with_an_agent_that_was_started_anew_is_lost_without_blame() -> None:
    """A trainer that was away meanwhile learns it from what the agent doesn't tell of."""
    ada = Agent("ada", 2)
    async with watched(ada) as made:
        first, second = ada.started
        ada.ends.put_nowait(WatchWorkersResponse(worker=WorkerProcess(worker_id=first)))
        ada.ends.put_nowait(WatchWorkersResponse(has_told_all=True))
        await until(lambda: any(isinstance(state.phase, Lost) for state in made.pool.states()))
        lives, lost = made.pool.states()
        assert (lives.worker_id, lost.worker_id) == (first, second)
        assert not isinstance(lives.phase, Lost)
        assert not lives.contact.is_agent_away
        assert (
            made.record.worker(second).end_reason == "it went with its node's agent, which was started anew"
        )
        assert blamed(made) == []


async def test_a_node_that_is_reached_elsewhere_is_watched_there_and_the_record_says_so() -> None:
    """It has another relay."""
    ada = Agent("ada", 1)
    async with watched(ada) as made:
        async with asyncio.timeout(DEADLINE_S):
            await ada.watched.wait()
            neighbours = made.room.neighbours
            moved = neighbours.agents["elsewhere"] = Agent("ada", 1)
            neighbours.moved["ada"] = "elsewhere"
            ada.ends.put_nowait(UnavailableError("the relay is gone"))
            await moved.watched.wait()
        assert made.record.nodes()["node-ada"].address == "elsewhere"


async def test_a_bug_in_a_watch_comes_out_at_its_owner() -> None:
    ada = Agent("ada", 1)
    made = parts(ada)
    await made.nodes.recruit()
    ada.ends.put_nowait(ValueError("a bug"))
    with pytest.raises(ExceptionGroup) as raised:
        await asyncio.wait_for(made.nodes.watch_forever(), DEADLINE_S)
    assert raised.group_contains(ValueError, match="a bug")


async def test_a_lost_worker_is_replaced_and_its_new_node_is_watched() -> None:
    """The old node has no slot left, and is not to blame for that: it is asked again and again."""
    ada, bob = Agent("ada", 1), Agent("bob", 0)
    made = parts(ada, bob)
    await made.nodes.recruit()
    record = made.record
    blamed(made)
    record.generation_begun(ada.started, 0, "1 worker begins", False)
    made.pool.begin_generation(ada.started, 0, None)
    watching = asyncio.create_task(made.nodes.watch_forever())
    reinforcing = asyncio.create_task(made.nodes.reinforce_forever())
    await asyncio.sleep(0)
    made.pool.lose(ada.started[0], "it died")
    ada.slots, bob.slots = 0, 1
    made.pool.someone_departs.set()  # wakes the round before its time
    await until(lambda: bob.watched.is_set() and len(record.job.workers) == 2)
    assert [each.node_name for each in record.job.workers] == ["ada", "bob"]
    assert blamed(made) == [("node-ada", f"{ada.started[0]} was lost: it died")]
    for task in (watching, reinforcing):
        task.cancel()
    await asyncio.gather(watching, reinforcing, return_exceptions=True)


async def test_a_worker_lost_before_the_first_generation_is_replaced_once_the_job_waits_for_nodes() -> None:
    ada, bob = Agent("ada", 1), Agent("bob", 0)
    made = parts(ada, bob, max_workers=1)
    await made.nodes.recruit()
    reinforcing = asyncio.create_task(made.nodes.reinforce_forever())
    made.pool.lose(ada.started[0], "it died")
    ada.slots, bob.slots = 0, 1
    await settle()
    made.pool.someone_departs.set()  # wakes the round before its time
    await settle()
    assert bob.started == [], "the others may still be starting"
    made.record.state_changed(JobState.JOB_STATE_WAITING, "waiting for nodes")
    made.pool.someone_departs.set()
    await until(lambda: bob.started)
    reinforcing.cancel()
    await asyncio.gather(reinforcing, return_exceptions=True)


async def test_what_is_left_of_a_worker_that_was_given_up_leaves_its_slot() -> None:
    """One that hangs, Python's lock held, hears nothing of the trainer; its agent can end it."""
    ada = Agent("ada", 2)
    made = parts(ada)
    await made.nodes.recruit()
    stopping = asyncio.create_task(made.nodes.stop_forever())
    ada.is_away = True
    made.pool.give_up_on(ada.started[1], "it fell silent")
    await settle()
    assert ada.stopped == []
    ada.is_away = False
    await until(lambda: ada.stopped == [ada.started[1]])
    assert isinstance(made.pool.state_of(ada.started[1]).phase, Lost)
    stopping.cancel()
    await asyncio.gather(stopping, return_exceptions=True)


async def test_slots_are_freed_on_nodes_that_were_being_asked_too() -> None:
    """One may hold a slot for the job whose answer nobody hears any more, as the job ended meanwhile."""
    ada, bob = Agent("ada", 1), Silent("bob", 1)
    made = parts(ada, bob)
    recruiting = asyncio.create_task(made.nodes.recruit())
    await until(lambda: bob.asked)
    recruiting.cancel()
    await asyncio.gather(recruiting, return_exceptions=True)
    await made.nodes.free_slots()
    assert (ada.stopped, bob.stopped) == (["job-1"], ["job-1"])


async def test_a_node_that_lied_is_not_asked_again_for_the_job() -> None:
    ada, bob = Agent("ada", 1), Agent("bob", 1)
    made = parts(ada, bob, max_workers=1)
    dismissed = LiarDismissed(node_id="node-ada", node_name="ada", reason="it lied")
    made.record.audit_entered(WatchJobResponse(liar_dismissed=dismissed))
    await made.nodes.recruit()
    assert (ada.asked, len(bob.started)) == ([], 1)


async def test_who_wants_to_go_need_not_wait_where_no_replacement_is_to_be_had() -> None:
    ada = Agent("ada", 1)
    made = parts(ada)
    await made.nodes.recruit()
    record = made.record
    record.generation_begun(ada.started, 0, "1 worker begins", False)
    made.pool.begin_generation(ada.started, 0, None)
    reinforcing = asyncio.create_task(made.nodes.reinforce_forever())
    await asyncio.sleep(0)
    ada.slots = 0
    [state] = made.pool.states()
    made.pool.become(state.departing(60.0, "its owner is back", 0.0))
    made.pool.someone_departs.set()
    await until(lambda: made.pool.states()[0].is_due(0.0))
    reinforcing.cancel()
