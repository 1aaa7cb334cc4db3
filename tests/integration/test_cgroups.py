"""A cgroup for each process that works for others: what it bounds, how it ends, and what a job is told."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from peerloom import Client, Embedded
from peerloom.sandbox.cgroup_places import CgroupPlaces
from peerloom.sandbox.cgroups import Cgroup, CgroupParent, GroupLimits, open_parent, why_no_cgroups

LIMIT_S = 100.0
WHY_NOT = why_no_cgroups()
needs_cgroups = pytest.mark.skipif(bool(WHY_NOT), reason=f"needs cgroups: {WHY_NOT}")
MEMORY_BYTES = 64 * 2**20
# Waits for a byte; then writes to so many bytes of shared memory, which no limit of one process counts.
FILLS = """
import mmap, sys
sys.stdin.read(1)
shared = mmap.mmap(-1, int(sys.argv[1]))
for place in range(0, len(shared), 4096):
    shared[place] = 1
"""
# Leaves its session and its parent, as what wants to stay does, and says who it is.
STAYS = """
import os, signal
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.close(1)
        signal.pause()
    os._exit(0)
os.wait()
signal.pause()
"""
CODE = """
import mmap, os
import torch
from peerloom.worker.task import Split, Task

def bomb():
    gate, held = os.pipe()
    try:
        for number in range(500):
            # Programs of their own: copies of us would fill the memory first, by their pages' tables.
            os.posix_spawn("/bin/cat", ["cat"], {}, file_actions=[(os.POSIX_SPAWN_DUP2, gate, 0)])
            os.write(1, b"started %d\\n" % (number + 1))
    except BlockingIOError:
        os.write(1, b"refused\\n")  # and whichever library wants a thread now ends this process
    os._exit(7)

def fill():
    shared = mmap.mmap(-1, 2**30)
    for place in range(0, len(shared), 4096):
        shared[place] = 1

class Greedy(Task):
    epochs = 1

    def __init__(self, does: str) -> None:
        self._does = {"bomb": bomb, "fill": fill}[does]

    def model(self) -> torch.nn.Module:
        return torch.nn.Linear(2, 2)

    def data(self) -> tuple[Split, Split]:
        self._does()
        points = torch.randn(64, 2, generator=torch.Generator().manual_seed(1))
        split = Split(points, (points[:, 0] > points[:, 1]).long())
        return split, split
"""


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[CgroupParent]:
    found, why_not = open_parent(tmp_path / "state")
    assert found is not None, why_not
    yield found
    found.close()
    assert not any(Path(line).exists() for line in (tmp_path / "state" / "cgroups").read_text().splitlines())


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def stays_in(group: Cgroup) -> tuple["subprocess.Popen[bytes]", int]:
    """A process in the group, and one that it let go in a session of its own."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", f"read go; exec {sys.executable} -c '{STAYS}'"], stdin=-1, stdout=-1
    )
    group.add(process.pid)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"go\n")
    process.stdin.flush()
    return process, int(process.stdout.readline())


def close(process: "subprocess.Popen[bytes]") -> int:
    with process:
        return process.wait(LIMIT_S)


@needs_cgroups
def test_memory_is_counted_together_and_the_kernel_says_whom_it_killed_for_it(parent: CgroupParent) -> None:
    for bytes_used, outcome in ((MEMORY_BYTES // 4, 0), (2 * MEMORY_BYTES, -9)):
        group = parent.group(GroupLimits(MEMORY_BYTES, 10))
        process = subprocess.Popen([sys.executable, "-c", FILLS, str(bytes_used)], stdin=subprocess.PIPE)
        group.add(process.pid)
        process.communicate(b"g", LIMIT_S)
        assert process.returncode == outcome
        said = group.end()
        assert said.startswith(f"it used more than the {MEMORY_BYTES:,} bytes of memory") == (outcome != 0)
        assert bool(said) == (outcome != 0)


@needs_cgroups
def test_with_the_group_ends_all_that_is_in_it(parent: CgroupParent) -> None:
    group = parent.group(GroupLimits(tasks=10))
    process, left = stays_in(group)
    assert os.getsid(left) != os.getsid(process.pid)
    group.end()
    assert close(process) == -9
    assert ended(left)


@needs_cgroups
def test_what_a_dead_agent_left_is_ended_by_the_next(parent: CgroupParent, tmp_path: Path) -> None:
    before = [Path(line) for line in (tmp_path / "state" / "cgroups").read_text().splitlines()]
    process, left = stays_in(parent.group(GroupLimits(tasks=10)))
    after, why_not = open_parent(tmp_path / "state")
    assert after is not None, why_not
    assert close(process) == -9
    assert ended(left)
    assert not any(folder.exists() for folder in before)
    after.close()


def test_a_group_of_version_2_is_ended_as_a_whole(tmp_path: Path) -> None:
    """Where the tree of version 2 has no controllers, it has groups all the same."""
    folder = _unified()
    if folder is None or not os.access(folder, os.W_OK):
        pytest.skip("needs cgroups of version 2 that may be written")
    place = folder / f"peerloom-test-{os.getpid()}"
    group = Cgroup(CgroupPlaces(place, place), GroupLimits())
    process, left = stays_in(group)
    assert group.end() == ""
    assert close(process) == -9
    assert ended(left)
    assert not place.exists()


def _unified() -> Path | None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        here, _, there = line.partition(" - ")
        if there.startswith("cgroup2 "):
            own = next(
                one for one in Path("/proc/self/cgroup").read_text().splitlines() if one.startswith("0::")
            )
            return Path(here.split(" ")[4], own.removeprefix("0::").lstrip("/"))
    return None


def test_version_2_divides_what_was_delegated(tmp_path: Path) -> None:
    """By ordinary files in place of the kernel's: the agent steps aside, and each group gets its limits."""
    own, state = tmp_path / "own", tmp_path / "state"
    state.mkdir()
    own.mkdir()
    (own / "cgroup.type").write_text("domain\n")
    (own / "cgroup.subtree_control").write_text("")
    (own / "cgroup.procs").write_text(f"{os.getpid()}\n")
    parent = CgroupParent(CgroupPlaces(own, own), state)
    assert (own / "peerloom-agent" / "cgroup.procs").read_text() == str(os.getpid())
    assert (own / "cgroup.subtree_control").read_text() == "+memory +pids"
    parent.group(GroupLimits(1000, 20))
    place = Path((state / "cgroups").read_text().strip())
    [group] = [one for one in place.iterdir() if one.is_dir()]
    limits = {name: (group / name).read_text() for name in ("memory.max", "memory.oom.group", "pids.max")}
    assert limits == {"memory.max": "1000", "memory.oom.group": "1", "pids.max": "20"}
    assert (group / "memory.swap.max").read_text() == "0"


def test_others_in_the_agents_own_group_are_not_moved(tmp_path: Path) -> None:
    (tmp_path / "cgroup.type").write_text("domain\n")
    (tmp_path / "cgroup.subtree_control").write_text("")
    (tmp_path / "cgroup.procs").write_text(f"1\n{os.getpid()}\n")
    with pytest.raises(OSError, match="other processes are in the agent's own cgroup"):
        CgroupParent(CgroupPlaces(tmp_path, tmp_path), tmp_path)


@needs_cgroups
@pytest.mark.timeout(240)
def test_a_jobs_code_is_bounded_and_told_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """500 processes stop at the limit, and other jobs go on; 1 GB ends the worker that wants it."""
    monkeypatch.setenv("PEERLOOM_NODE_ALLOW_CODE", "true")
    monkeypatch.setenv("PEERLOOM_NODE_WORKER_TASKS", "300")
    monkeypatch.setenv("PEERLOOM_NODE_MEMORY_LIMIT_BYTES", str(300 * 2**20))
    code = tmp_path / "code"
    code.mkdir()
    (code / "greedy.py").write_text(CODE)
    with Embedded(tmp_path / "system", (1, 1)) as system, Client(system.address) as client:
        assert all(node.labels["sandbox"].endswith("+cgroup") for node in client.nodes())
        other = client.train("digits", min_workers=1, max_workers=1)
        job = client.train("greedy:Greedy", max_workers=1, code=code, arguments={"does": "bomb"})
        result = job.result(LIMIT_S)
        assert not result.succeeded
        lines = [line.line for line in job.logs()]
        started = [int(line.split()[1]) for line in lines if line.startswith("started ")]
        assert 20 < max(started, default=0) < 300, (result.reason, lines)
        other.result(LIMIT_S).raise_for_state()
        assert client.job(other.id).status().generation == 1

        job = client.train("greedy:Greedy", code=code, arguments={"does": "fill"})
        told = next(str(event) for event in job.watch() if "bytes of memory" in str(event))
        limit = f"{(2 * 300 + 256) * 2**20:,}"
        assert f"killed by signal 9: it used more than the {limit} bytes of memory" in told
        job.cancel()
