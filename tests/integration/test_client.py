"""The SDK over real sockets: what comes back, lines that break, errors, the sync face and its end."""

import asyncio
import gc
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client_system import System

import peerloom
from peerloom import (
    AsyncClient,
    AsyncJobHandle,
    Client,
    DeadlineError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    StateChanged,
    StepCommitted,
    UnavailableError,
)
from peerloom.embedded.system import Embedded
from peerloom.v1 import artifact_pb2, registry_pb2, selector_pb2, trainer_pb2

LIMIT_S = 60.0
RUNNING, SUCCEEDED = trainer_pb2.JOB_STATE_RUNNING, trainer_pb2.JOB_STATE_SUCCEEDED
JOB = "job-000000000000"


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    """A system with two nodes, anna alive and berta dead."""
    with System(tmp_path / "store") as made:
        for name, state in (("anna", registry_pb2.NODE_STATE_ALIVE), ("berta", registry_pb2.NODE_STATE_DEAD)):
            spec = registry_pb2.NodeSpec(name=name, address="127.0.0.1:1", slots=2, labels={"who": name})
            made.registry.nodes[name] = registry_pb2.Node(node_id=f"node-{name}", spec=spec, state=state)
        yield made


@pytest.fixture
def client(system: System) -> Iterator[Client]:
    with Client(system.address) as made:
        yield made


def step(number: int) -> dict[str, Any]:
    return {"step": trainer_pb2.StepProgress(step=number, total_steps=4, loss=1.0 / number)}


def script(system: System, *, to_the_end: bool = True) -> None:
    """A job of six events: running, four steps, and its success."""
    system.add(JOB, RUNNING)
    for number in range(1, 5):
        system.add(JOB, RUNNING, **step(number))
    if to_the_end:
        system.add(JOB, SUCCEEDED)


def keep_model(system: System, tmp_path: Path, content: bytes, job_id: str = JOB) -> str:
    """Lets a job leave `content` as its model; returns the digest."""
    source = tmp_path / f"{job_id}.source"
    source.write_bytes(content)
    header = artifact_pb2.Artifact(kind=artifact_pb2.ARTIFACT_KIND_MODEL, name="m", job_id=job_id)
    kept = system.store.add_file(source, header)
    system.add(job_id, SUCCEEDED)
    system.trainer.jobs[job_id].result.model.CopyFrom(kept)
    return kept.digest


# ------------------------------------------------------------------------------------ nodes and beliefs


def test_lists_come_whole_over_several_pages(system: System, client: Client) -> None:
    for number in range(5):
        spec = registry_pb2.NodeSpec(name=f"extra-{number}")
        system.registry.nodes[spec.name] = registry_pb2.Node(spec=spec)
    assert [node.name for node in client.nodes()] == ["anna", "berta", *[f"extra-{n}" for n in range(5)]]


def test_nodes_are_filtered_by_state_and_labels(client: Client) -> None:
    assert [node.name for node in client.nodes(states=["alive"])] == ["anna"]
    assert [node.name for node in client.nodes(labels={"who": "berta"})] == ["berta"]


def test_an_unknown_node_is_the_registrys_own_error(client: Client) -> None:
    """The same class, reason and metadata as raised in the service."""
    with pytest.raises(NotFoundError, match="Did you mean anna") as caught:
        client.node("ana")
    assert caught.value.reason == "NODE_NOT_FOUND"
    assert caught.value.metadata == {"kind": "node", "name": "ana", "nearest": "anna"}


def test_a_drain_can_be_taken_back(client: Client) -> None:
    assert client.drain("anna").draining is True
    assert client.drain("anna", undo=True).draining is False
    assert client.node("anna").draining is False


def test_sessions_and_interruptions(system: System, client: Client) -> None:
    for number in range(4):
        system.registry.past.append(
            registry_pb2.Session(session_id=str(number), node_name="anna", interrupted=number % 2 == 1)
        )
    assert [each.id for each in client.sessions("anna")] == ["0", "1", "2", "3"]
    assert [each.id for each in client.sessions(limit=3)] == ["0", "1", "2"]
    assert [each.id for each in client.interruptions()] == ["1", "3"]
    assert client.sessions("berta") == []


def test_beliefs_their_history_and_the_policies(system: System, client: Client) -> None:
    for name, value in (("anna", 1.0), ("berta", 2.0)):
        past = [selector_pb2.Belief(name=name, belief=value, updates=count) for count in (5, 4, 3, 2, 1)]
        system.selector.history[name] = past
    assert [each.name for each in client.beliefs()] == ["berta", "anna"]
    assert client.belief("anna").updates == 5
    assert [each.updates for each in client.belief_history("anna", limit=3)] == [5, 4, 3]
    assert len(client.belief_history("anna", limit=None)) == 5
    assert [(each.name, each.is_default) for each in client.policies()] == [("thesis", True)]


def test_services_tell_who_is_healthy(system: System, client: Client) -> None:
    system.stop("selector")
    found = {each.name: each for each in client.services()}
    assert list(found) == ["registry", "selector", "trainer"]
    assert [each.healthy for each in found.values()] == [True, False, True]
    assert found["registry"].address == system.address
    assert found["selector"].address in found["selector"].detail


# ------------------------------------------------------------------------------------ jobs


def test_a_job_is_handed_in_as_asked(system: System, client: Client) -> None:
    jobs = [client.train("digits", requests=3, seed=7), client.train("digits", requests=3, seed=7)]
    first, second = system.trainer.submitted
    assert (first.spec.task, first.spec.request_budget, first.spec.seed) == ("digits", 3, 7)
    # Each is meant as a job of its own; only a retry of the same call is the same job.
    assert uuid.UUID(first.request_id) != uuid.UUID(second.request_id)
    assert client.job(jobs[0].id).id == jobs[0].id
    assert [job.id for job in client.jobs()] == [jobs[1].id, jobs[0].id]
    assert [job.id for job in client.jobs(limit=1)] == [jobs[1].id]
    assert client.jobs(states=["running"]) == []
    assert jobs[0].status().spec.requests == 3


def test_a_watch_tells_all_and_ends_with_the_job(system: System, client: Client) -> None:
    script(system)
    events = list(client.job(JOB).watch())
    assert [event.sequence for event in events] == [1, 2, 3, 4, 5, 6]
    assert [event.step for event in events if isinstance(event, StepCommitted)] == [1, 2, 3, 4]
    assert isinstance(events[-1], StateChanged)
    assert events[-1].is_final


@pytest.mark.parametrize("repeats", [False, True])
def test_a_watch_that_breaks_has_no_gap_and_no_repeat(system: System, client: Client, repeats: bool) -> None:
    """The line is cut after the 2nd, 3rd and last event; a careless trainer also sends some twice."""
    script(system)
    system.trainer.break_after, system.trainer.repeats = {2, 3, 5}, repeats
    assert [event.sequence for event in client.job(JOB).watch()] == [1, 2, 3, 4, 5, 6]
    assert system.trainer.watched_after == [0, 2, 3, 5]


def test_a_watch_follows_a_trainer_that_restarts_elsewhere(system: System, client: Client) -> None:
    """It is stopped while the watch waits for news, and comes back at another port with more events."""
    script(system, to_the_end=False)
    seen = []
    for event in client.job(JOB).watch():
        seen.append(event.sequence)
        if event.sequence == 5:
            system.stop("trainer")
            system.add(JOB, RUNNING, **step(5))
            system.start("trainer")
            system.add(JOB, SUCCEEDED)
    assert seen == [1, 2, 3, 4, 5, 6, 7]


def test_a_watch_after_the_end_ends_at_once(system: System, client: Client) -> None:
    script(system)
    assert [event.sequence for event in client.job(JOB).watch(after=4)] == [5, 6]
    assert list(client.job(JOB).watch(after=6)) == []


def test_a_watch_without_patience_says_that_the_job_goes_on(system: System) -> None:
    script(system, to_the_end=False)
    with Client(system.address, patience_s=0.0) as client:
        events = client.job(JOB).watch(after=4)
        assert next(events).sequence == 5
        system.stop("trainer")
        with pytest.raises(UnavailableError, match=f"{JOB} isn't lost"):
            next(events)


def test_a_result_waits_for_the_end(system: System, client: Client) -> None:
    script(system, to_the_end=False)
    system.trainer.on_idle = lambda: asyncio.ensure_future(system.trainer.add(JOB, SUCCEEDED))
    result = client.job(JOB).result(LIMIT_S)
    assert result.succeeded
    assert result.reason == "scripted"


def test_a_job_without_compute_is_an_answer(system: System, client: Client) -> None:
    system.add(JOB, trainer_pb2.JOB_STATE_NO_COMPUTE)
    result = client.job(JOB).result()
    assert (result.state, result.succeeded, result.model) == ("no_compute", False, None)
    with pytest.raises(FailedPreconditionError) as caught:
        result.raise_for_state()
    assert caught.value.reason == "JOB_NO_COMPUTE"


def test_a_result_that_takes_too_long_leaves_the_job_running(system: System, client: Client) -> None:
    script(system, to_the_end=False)
    job = client.job(JOB)
    with pytest.raises(DeadlineError, match="It goes on") as caught:
        job.result(timeout_s=0.05)
    assert caught.value.metadata["job_id"] == JOB
    assert job.status().state == "running"


def test_a_cancelled_job(system: System, client: Client) -> None:
    job = client.train("digits")
    assert job.cancel().state == "cancelled"
    with pytest.raises(peerloom.CancelledError):
        job.result(LIMIT_S).raise_for_state()


def test_logs_with_and_without_a_tail(system: System, client: Client) -> None:
    script(system)
    for number in range(3):
        line = trainer_pb2.GetJobLogsResponse(node_name="anna", worker_id="w", line=f"line {number}")
        system.trainer.lines.append(line)
    assert [each.line for each in client.job(JOB).logs()] == ["line 0", "line 1", "line 2"]
    assert [each.line for each in client.job(JOB).logs(tail=1)] == ["line 2"]
    with pytest.raises(InvalidArgumentError, match="tail is -1"):
        list(client.job(JOB).logs(tail=-1))


# ------------------------------------------------------------------------------------ models


def test_a_model_is_fetched_by_job_digest_or_its_beginning(
    system: System, client: Client, tmp_path: Path
) -> None:
    content = bytes(range(256)) * 5000  # more than two chunks
    digest = keep_model(system, tmp_path, content)
    assert digest == hashlib.sha256(content).hexdigest()
    for model in (digest, digest[:8], JOB):
        assert client.fetch_model(model, tmp_path / "a" / "model").read_bytes() == content
    assert client.job(JOB).fetch_model(tmp_path) == tmp_path / f"{digest[:12]}.safetensors"
    assert client.fetch_model(JOB, f"{tmp_path}/new/") == tmp_path / "new" / f"{digest[:12]}.safetensors"
    assert [each.digest for each in client.models()] == [digest]


def test_a_damaged_model_leaves_what_was_there(system: System, client: Client, tmp_path: Path) -> None:
    digest = keep_model(system, tmp_path, b"good" * 1000)
    system.store.path(digest).write_bytes(b"evil" * 1000)
    target = tmp_path / "model"
    target.write_bytes(b"older")
    with pytest.raises(NotFoundError, match="Nobody holds"):  # whole, that is
        client.fetch_model(JOB, target)
    assert target.read_bytes() == b"older"
    assert not list(tmp_path.glob(".*.part"))


def test_an_unknown_model_and_a_job_without_one(system: System, client: Client, tmp_path: Path) -> None:
    script(system, to_the_end=False)
    with pytest.raises(NotFoundError):
        client.fetch_model("abcdef", tmp_path)
    with pytest.raises(NotFoundError):
        client.fetch_model("ab" * 32, tmp_path)
    with pytest.raises(FailedPreconditionError, match="running") as caught:
        client.fetch_model(JOB, tmp_path)
    assert caught.value.reason == "JOB_HAS_NO_MODEL"


def test_a_path_where_no_file_can_be(system: System, client: Client, tmp_path: Path) -> None:
    keep_model(system, tmp_path, b"good")
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgumentError, match="path is"):
        client.fetch_model(JOB, tmp_path / "file" / "model")


# ------------------------------------------------------------------------------------ who is away


def test_a_registry_that_is_away_is_named_with_what_to_start(system: System) -> None:
    with Client(system.address) as client:
        system.stop("registry")
        with pytest.raises(UnavailableError, match=r"peerloom up.*the argument") as caught:
            client.nodes()
        with pytest.raises(UnavailableError) as of_another:
            client.jobs()
    assert caught.value.metadata["service"] == "registry"
    assert caught.value.metadata["address"] in caught.value.message
    assert of_another.value.message.count("peerloom up") == 1, "the registry is asked where the trainer is"


def test_a_service_that_never_came_is_named(system: System, client: Client) -> None:
    system.registry.services.clear()
    with pytest.raises(UnavailableError) as caught:
        client.jobs()
    assert caught.value.message.count("peerloom trainer --registry") == 1


def test_a_service_that_went_is_named(system: System, client: Client) -> None:
    system.stop("selector")
    with pytest.raises(UnavailableError, match="Start it with: peerloom selector --registry"):
        client.beliefs()


def test_a_registry_that_went_hides_no_service_met_before(system: System, client: Client) -> None:
    job = client.train("digits")
    system.stop("registry")
    assert job.status().state == "queued"


def test_the_embedded_system_is_found_by_its_file(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PEERLOOM_ADDRESS", raising=False)
    monkeypatch.setenv("PEERLOOM_STATE", str(tmp_path))
    (tmp_path / "system.json").write_text(f'{{"registry": "{system.address}", "pid": 1}}')
    with Client() as client:
        assert client.address == system.address
        assert client.node("anna").name == "anna"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"registry": '])
def test_a_broken_file_of_the_embedded_system_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.delenv("PEERLOOM_ADDRESS", raising=False)
    monkeypatch.setenv("PEERLOOM_STATE", str(tmp_path))
    (tmp_path / "system.json").write_text(text)
    with pytest.raises(peerloom.ConfigurationError, match=r"system\.json"):
        Client()


# ------------------------------------------------------------------------------------ async, sync, the end


async def test_the_async_client_leaves_no_task_behind(system: System) -> None:
    """Also when a watch is left in its middle."""
    script(system, to_the_end=False)
    async with asyncio.timeout(LIMIT_S), AsyncClient(system.address) as client:
        job = await client.job(JOB)
        events = job.watch()
        async for event in events:
            if event.sequence == 3:
                break
        await events.aclose()
        assert len(await client.nodes()) == 2
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_cancelled_wait_is_cancelled_and_not_retried(system: System) -> None:
    script(system, to_the_end=False)
    idle = asyncio.Event()
    loop = asyncio.get_running_loop()
    system.trainer.on_idle = lambda: loop.call_soon_threadsafe(idle.set)
    async with asyncio.timeout(LIMIT_S), AsyncClient(system.address) as client:
        waiting = asyncio.create_task((await client.job(JOB)).result())
        await idle.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert len(system.trainer.watched_after) == 1


async def test_a_closed_async_client_ends_its_watches_and_refuses(system: System) -> None:
    script(system, to_the_end=False)
    idle = asyncio.Event()
    loop = asyncio.get_running_loop()
    system.trainer.on_idle = lambda: loop.call_soon_threadsafe(idle.set)
    async with asyncio.timeout(LIMIT_S):
        client = AsyncClient(system.address)
        waiting = asyncio.create_task((await client.job(JOB)).result())
        await idle.wait()
        await client.close()
        for wait in (waiting, client.nodes()):
            with pytest.raises(FailedPreconditionError) as caught:
                await wait
            assert caught.value.reason == "CLIENT_CLOSED"


async def test_a_watch_follows_a_trainer_that_another_call_found_elsewhere(system: System) -> None:
    """The other call closes the line that the watch waits on: a break like any other."""
    script(system, to_the_end=False)
    seen: list[int] = []
    all_seen = asyncio.Event()

    async def follow(job: AsyncJobHandle) -> None:
        async for event in job.watch():
            seen.append(event.sequence)
            if event.sequence == 5:
                all_seen.set()

    async with asyncio.timeout(LIMIT_S), AsyncClient(system.address) as client:
        following = asyncio.create_task(follow(await client.job(JOB)))
        await all_seen.wait()
        await asyncio.to_thread(system.start_another, "trainer")
        assert len(await client.jobs()) == 1
        await asyncio.to_thread(system.add, JOB, SUCCEEDED)
        await following
    assert seen == [1, 2, 3, 4, 5, 6]
    assert system.trainer.watched_after == [0, 5]


async def test_the_sync_client_works_inside_a_running_loop(system: System) -> None:
    """As in a notebook: this test's own loop runs, and is blocked meanwhile."""
    script(system)
    with Client(system.address) as client:
        assert len(client.nodes()) == 2
        assert [event.sequence for event in client.job(JOB).watch()] == [1, 2, 3, 4, 5, 6]


def test_ctrl_c_leaves_a_watch_and_not_the_job(system: System, client: Client) -> None:
    """SIGINT comes while the watch waits for news: its stream is closed, the client goes on."""
    script(system, to_the_end=False)
    system.trainer.on_idle = lambda: os.kill(os.getpid(), signal.SIGINT)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background run has it ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            list(client.job(JOB).watch())
    finally:
        signal.signal(signal.SIGINT, before)
    assert system.trainer.left.wait(LIMIT_S)
    assert client.job(JOB).status().state == "running"


def test_leaving_a_watch_closes_its_stream(system: System, client: Client) -> None:
    script(system, to_the_end=False)
    idle = threading.Event()
    system.trainer.on_idle = idle.set
    for event in client.job(JOB).watch():
        if event.sequence == 5:
            assert idle.wait(LIMIT_S)
            break
    gc.collect()
    assert system.trainer.left.wait(LIMIT_S)


def test_a_client_leaves_no_thread_behind(system: System) -> None:
    before = set(threading.enumerate())
    with Client(system.address) as client:
        client.nodes()
        client.close()
    assert_gone(set(threading.enumerate()) - before)
    with pytest.raises(FailedPreconditionError):
        client.nodes()


def test_a_forgotten_client_is_closed_when_its_last_handle_is_gone(system: System) -> None:
    before = set(threading.enumerate())
    job = Client(system.address).train("digits")
    gc.collect()
    assert job.status().state == "queued"
    del job
    gc.collect()
    assert_gone(set(threading.enumerate()) - before)


def assert_gone(threads: set[threading.Thread]) -> None:
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive(), thread.name


def test_a_script_may_end_without_closing(system: System) -> None:
    """The interpreter ends by itself, and says nothing."""
    text = f"import peerloom; c = peerloom.Client('{system.address}'); print(len(c.nodes()))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")


# ------------------------------------------------------------------------------------ the real services


def test_a_real_system_without_nodes_answers_and_finds_no_compute(tmp_path: Path) -> None:
    """Registry, selector and trainer as processes; errors of each come out as its own classes."""
    with Embedded(tmp_path / "state", slots=[]) as real, Client(real.address) as client:
        deadline_s = time.monotonic() + LIMIT_S
        while not all(each.healthy for each in client.services()):  # who is busy for a moment isn't
            assert time.monotonic() < deadline_s, client.services()
        assert [each.name for each in client.services()] == ["registry", "selector", "trainer"]
        assert (client.nodes(), client.sessions(), client.beliefs(), client.models()) == ([], [], [], [])
        assert {"random", "thesis"} <= {each.name for each in client.policies()}
        job = client.train("digits", requests=1)
        *_, last = job.watch()
        assert isinstance(last, StateChanged)
        assert last.state == "no_compute"
        assert job.result(LIMIT_S).state == "no_compute"
        with pytest.raises(NotFoundError, match="thesis") as caught:
            client.train("digits", policy="thesys")
        assert caught.value.reason == "POLICY_NOT_FOUND"
