"""The process that workers are forked from: there before there is work, replaced when it dies, no burden."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from node_agent_parts import LIMIT_S, worker_command

from peerloom.errors import FailedPreconditionError
from peerloom.sandbox.resource_limits import OPEN_FILES
from peerloom.services.node_agent.workers.fork_client import ForkServerClient
from peerloom.services.node_agent.workers.forked_worker import ForkedWorker
from peerloom.worker.assignment import Assignment, Work


@dataclass
class Owner:
    """Who has to end the workers that a test has started."""

    workers: list[ForkedWorker] = field(default_factory=list)


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
async def forks(tmp_path: Path, owner: Owner) -> AsyncIterator[ForkServerClient]:
    async with running(worker_command(tmp_path).split(","), tmp_path, owner) as forks:
        yield forks


@pytest.fixture
async def slow_forks(tmp_path: Path, owner: Owner) -> AsyncIterator[ForkServerClient]:
    """Its process isn't ready before `open_gate`, as if it imported for long."""
    os.mkfifo(tmp_path / "gate")
    wait = f"open({str(tmp_path / 'gate')!r}).close()"
    async with running(worker_command(tmp_path, before=wait).split(","), tmp_path, owner) as forks:
        yield forks


async def open_gate(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S):
        await asyncio.to_thread((tmp_path / "gate").write_text, "")


@asynccontextmanager
async def running(command: list[str], tmp_path: Path, owner: Owner) -> AsyncIterator[ForkServerClient]:
    forks = ForkServerClient(command, {**os.environ, "OMP_NUM_THREADS": "1"})
    forks.want(True)
    keeping = asyncio.create_task(forks.keep())
    yield forks
    keeping.cancel()
    with suppress(asyncio.CancelledError):
        await keeping
    await asyncio.gather(*(worker.stop(0) for worker in owner.workers))
    await forks.close()
    assert ours(tmp_path) == []


def ours(tmp_path: Path) -> list[int]:
    """The processes of this test's own command: the side's other children aren't its."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has just ended
            if any(str(tmp_path) in part for part in child.cmdline()):
                found.append(child.pid)
    return found


async def until(event: asyncio.Event) -> None:
    async with asyncio.timeout(LIMIT_S):
        await event.wait()


async def until_true(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110  # nobody tells of other processes
            await asyncio.sleep(0)


async def start(forks: ForkServerClient, owner: Owner, tmp_path: Path, name: str) -> ForkedWorker:
    worker = await forks.start()
    owner.workers.append(worker)
    worker.assign(
        Assignment(
            worker_id=name,
            job_id="job-1",
            work=Work("127.0.0.1:9", "digits"),
            agent_address="127.0.0.1:9",
            slot=0,
            accelerator_kind="cpu",
            device_index=0,
            interface="lo",
            threads=1,
            log_path=str(tmp_path / f"{name}.log"),
            secret="5" * 64,
            identity="",
        )
    )
    return worker


async def test_workers_are_forked_from_one_process_each_in_its_own_session(
    forks: ForkServerClient, owner: Owner, tmp_path: Path
) -> None:
    await until(forks.ready)
    [server] = ours(tmp_path)
    workers = [await start(forks, owner, tmp_path, f"waits-{number}") for number in range(3)]
    for worker in workers:
        assert psutil.Process(worker.pid).ppid() == server
        assert os.getsid(worker.pid) == worker.pid
    await workers[0].stop(0)
    assert workers[0].exit_code in (-signal.SIGTERM, -signal.SIGKILL)
    assert psutil.pid_exists(workers[1].pid)


async def test_a_worker_writes_no_core_and_opens_no_more_files_than_it_needs(
    forks: ForkServerClient, owner: Owner, tmp_path: Path
) -> None:
    worker = await start(forks, owner, tmp_path, "waits")
    await until(worker.started)
    process = psutil.Process(worker.pid)
    assert process.rlimit(psutil.RLIMIT_CORE) == (0, 0)
    soft, hard = process.rlimit(psutil.RLIMIT_NOFILE)
    assert 0 < soft == hard <= OPEN_FILES


async def test_each_tells_how_it_ended(forks: ForkServerClient, owner: Owner, tmp_path: Path) -> None:
    await until(forks.ready)
    names = ("exit-0", "exit-3", "waits")
    workers = [await start(forks, owner, tmp_path, name) for name in names]
    os.kill(workers[2].pid, signal.SIGKILL)
    for worker in workers:
        await until(worker.ended)
    assert [worker.exit_code for worker in workers] == [0, 3, -signal.SIGKILL]


async def test_sigterm_to_all_at_once_leaves_one_to_tell(
    forks: ForkServerClient, owner: Owner, tmp_path: Path
) -> None:
    """As a service manager ends a service: what forks stays until the agent has closed its socket."""
    await until(forks.ready)
    worker = await start(forks, owner, tmp_path, "waits")
    for pid in ours(tmp_path):
        os.kill(pid, signal.SIGTERM)
    await until(worker.ended)
    assert worker.exit_code == -signal.SIGTERM


async def test_a_worker_asked_for_too_early_waits_for_the_imports(
    slow_forks: ForkServerClient, owner: Owner, tmp_path: Path
) -> None:
    worker = await start(slow_forks, owner, tmp_path, "exit-3")
    assert (worker.pid, slow_forks.ready.is_set()) == (0, False)
    await open_gate(tmp_path)
    await until(worker.ended)
    assert worker.exit_code == 3


async def test_one_that_is_stopped_before_it_runs_frees_its_slot_at_once(
    slow_forks: ForkServerClient, owner: Owner, tmp_path: Path
) -> None:
    worker = await start(slow_forks, owner, tmp_path, "stubborn")
    await worker.stop(LIMIT_S)
    assert (worker.pid, worker.exit_code) == (0, -signal.SIGTERM)
    await open_gate(tmp_path)
    await until(worker.started)
    await until_true(lambda: worker.pid not in ours(tmp_path))


async def test_a_killed_server_is_replaced_and_its_workers_live_on(
    forks: ForkServerClient, owner: Owner, tmp_path: Path
) -> None:
    """Nobody sees their exit status any more, and their end is seen all the same."""
    await until(forks.ready)
    [first] = ours(tmp_path)
    worker = await start(forks, owner, tmp_path, "waits")
    os.kill(first, signal.SIGKILL)
    another = await start(forks, owner, tmp_path, "exit-3")
    await until(another.ended)
    assert another.exit_code == 3
    assert not worker.ended.is_set()
    os.kill(worker.pid, signal.SIGKILL)
    await until(worker.ended)
    assert worker.exit_code == 255


async def test_what_is_not_lent_takes_no_memory_once_its_workers_have_ended(
    forks: ForkServerClient, owner: Owner, tmp_path: Path
) -> None:
    await until(forks.ready)
    worker = await start(forks, owner, tmp_path, "waits")
    forks.want(False)
    await until_true(lambda: not forks.ready.is_set())
    assert len(ours(tmp_path)) == 2, "it stays to tell how its worker ended"
    os.kill(worker.pid, signal.SIGKILL)
    await until(worker.ended)
    assert worker.exit_code == -signal.SIGKILL
    await until_true(lambda: ours(tmp_path) == [])
    forks.want(True)
    await until(forks.ready)


async def test_one_that_can_not_become_a_worker_ends_alone(
    tmp_path: Path, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has told no id. Its exit status was once taken for that: 1, whose group is everybody."""
    killed: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, number: killed.append(group))
    refuse = "import os\ndef setsid(): raise PermissionError\nos.setsid = setsid"
    async with running(worker_command(tmp_path, before=refuse).split(","), tmp_path, owner) as forks:
        worker = await start(forks, owner, tmp_path, "waits")
        await until(worker.ended)
    assert (worker.pid, worker.exit_code, killed) == (0, 1, [])


async def test_one_that_tells_nonsense_of_itself_is_killed(
    forks: ForkServerClient, owner: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, kill = list[int](), os.killpg

    def note(group: int, number: int) -> None:
        killed.append(group)
        if group > 1:  # which would be everybody
            kill(group, number)

    monkeypatch.setattr(os, "killpg", note)
    worker = await start(forks, owner, tmp_path, "rude")
    await until(worker.ended)
    assert (worker.exit_code, set(killed)) == (255, {worker.pid})
    await until_true(lambda: worker.pid not in ours(tmp_path))


async def test_a_fork_without_a_descriptor_for_signals_works(tmp_path: Path, owner: Owner) -> None:
    """As Python's are from 3.12 on."""
    lose = (
        "import os, signal\nown, set_it = os.getpid(), signal.set_wakeup_fd\n"
        "signal.set_wakeup_fd = lambda fd, **more: set_it(fd, **more) if os.getpid() == own else -1"
    )
    async with running(worker_command(tmp_path, before=lose).split(","), tmp_path, owner) as forks:
        worker = await start(forks, owner, tmp_path, "exit-3")
        await until(worker.ended)
    assert worker.exit_code == 3


async def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    forks = ForkServerClient(["/no/such/program"], {})
    with pytest.raises(FailedPreconditionError, match="/no/such/program can't be started"):
        await forks.start()


async def test_a_broken_installation_ends_the_worker_that_was_asked_for(tmp_path: Path) -> None:
    forks = ForkServerClient(["/bin/false"], {})
    worker = await forks.start()
    await until(worker.ended)
    assert worker.exit_code == 255
    await forks.close()
