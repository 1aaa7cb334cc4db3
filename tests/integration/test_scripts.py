"""Scripts as torchrun starts them, on a whole system of two nodes: output, status, losses and failures."""

import os
import shutil
import signal
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from peerloom import Client, Embedded, GenerationFormed, JobHandle, WorkerLost
from peerloom.cli.main import cli

LIMIT_S = 200.0
EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "ddp_script.py"
# In its first start it stops after two steps: rank 1 until it is killed, rank 0 until its gloo tells it so.
STOPS = """
import os
import signal

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, start = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
step = int(open("step.txt").read()) if os.path.exists("step.txt") else 0
print("start", start, "at step", step, "of", dist.get_world_size(), "by", os.getppid(), flush=True)
while step < 4:
    total = torch.ones(1)
    dist.all_reduce(total)
    step += 1
    if rank == 0:
        open("step.txt", "w").write(str(step))
    if step == 2 and start == 0:
        print("stops", flush=True)
        signal.pause() if rank else dist.barrier()
print("ends after step", step, flush=True)
dist.destroy_process_group()
"""
# The example with two epochs, after which all ranks stay; when it is started again it makes one more.
STAYS = """
import os
import runpy
import signal
import sys

first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
sys.argv = ["dcp_script.py", "--epochs", "2" if first else "3"]
runpy.run_path(sys.argv[0], run_name="__main__")
if first:
    print("stays by", os.getppid(), flush=True)
    signal.pause()
"""
FAILS = """
import os
import sys

assert "ending" in os.environ["PYTHONPATH"]  # or gloo's threads abort the process now and then as it ends
print(sys.argv[1:], repr(sys.stdin.read()))
if os.environ["RANK"] == "1":
    print("there is no", sys.argv[1], file=sys.stderr)
    sys.exit(3)
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Two nodes of one slot that run code which jobs bring along."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PEERLOOM_NODE_ALLOW_CODE", "true")
        patch.setenv("PEERLOOM_TRAINER_CHECKPOINT_INTERVAL_S", "1")
        system = Embedded(tmp_path_factory.mktemp("system"), (1, 1))
        with system, Client(system.address) as client:
            yield client


def printed(job: JobHandle, rank: int) -> list[str]:
    """What the processes of this rank printed on standard output, start after start."""
    return [line.line for line in job.logs() if line.rank == rank and line.stream == "out"]


def test_the_example_runs_on_two_nodes_and_its_lines_status_and_files_come_back(
    client: Client, tmp_path: Path
) -> None:
    left = tmp_path / "left"
    arguments = ["--collect", str(left), str(EXAMPLE), "--epochs", "2"]
    result = CliRunner().invoke(cli, ["--address", client.address, "run", *arguments])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["[0] epoch 1", "[0] epoch 2"]
    assert lines[1].endswith("on 2 processes")
    assert "running: the script starts on 2 workers" in result.stderr
    assert "the script ended with status 0 on 2 workers" in result.stderr
    assert sorted(path.name for path in left.iterdir()) == ["checkpoint.pt", "ddp_script.py"]


def test_after_a_worker_is_killed_the_script_goes_on_from_its_own_checkpoint(
    client: Client, tmp_path: Path
) -> None:
    """Rank 0's file reaches the replacement too, which has never seen it: both begin at step 2."""
    script = tmp_path / "stops.py"
    script.write_text(STOPS)
    job = client.run_script(script, max_restarts=0)  # a loss isn't the script's failure
    victim, stopped = 0, set()
    with closing(job.logs(follow=True)) as lines:
        for line in lines:
            if line.rank == 1 and line.line.startswith("start 0"):
                victim = int(line.line.rpartition(" ")[2])
            if line.line == "stops":
                stopped.add(line.rank)
            if stopped == {0, 1}:
                break
    os.kill(victim, signal.SIGKILL)
    result = job.result(LIMIT_S)
    assert result.succeeded, result.reason
    assert result.exit_status == 0
    survivor = printed(job, 0)
    assert survivor[0].startswith("start 0 at step 0 of 2")
    assert survivor[-1] == "ends after step 4"
    again = [
        line.split() for line in (*survivor, *printed(job, 1)) if line.startswith(("start 1", "start 2"))
    ]
    assert again
    assert all(int(words[4]) >= 2 for words in again)
    events = list(job.watch())
    assert [event.worker.rank for event in events if isinstance(event, WorkerLost)] == [1]
    formed = [event for event in events if isinstance(event, GenerationFormed)]
    assert len(formed) >= 2
    ended = [line for line in printed(job, 1) if line.startswith("ends")]
    assert ended == (["ends after step 4"] if len(formed[-1].workers) == 2 else [])
    run = job.status().script_run  # rank 0's own process may have failed with its peer
    assert run is None or run.restarts == 0


def kept_files(client: Client, job: JobHandle, folder: Path) -> list[str]:
    """The names in what the trainer keeps of the job's files now."""
    digest = job.status().files
    if not digest:
        return []
    folder.mkdir(exist_ok=True)
    bundle = folder / digest
    if not bundle.exists():
        client.artifacts.get(digest, bundle)
    with tarfile.open(bundle) as tar:
        return tar.getnames()


def test_after_a_kill_all_ranks_find_the_shards_that_each_of_them_saved(
    client: Client, tmp_path: Path
) -> None:
    """Rank 1's part of the checkpoint lay in the folder of the worker that is killed."""
    (tmp_path / "code").mkdir()
    shutil.copy(EXAMPLES / "dcp_script.py", tmp_path / "code")
    (tmp_path / "code" / "stays.py").write_text(STAYS)
    job = client.run_script(tmp_path / "code" / "stays.py", code=tmp_path / "code", max_restarts=0)
    workers: dict[int, int] = {}
    with closing(job.logs(follow=True)) as lines:
        for line in lines:
            if line.line.startswith("stays by"):
                workers[line.rank] = int(line.line.rpartition(" ")[2])
            if len(workers) == 2:
                break
    parts = {f"checkpoints/epoch-0002/{name}" for name in ("__0_0.distcp", "__1_0.distcp", ".metadata")}
    deadline_s = time.monotonic() + LIMIT_S
    while not parts <= set(kept := kept_files(client, job, tmp_path / "kept")):
        assert time.monotonic() < deadline_s, kept
    os.kill(workers[1], signal.SIGKILL)
    result = job.result(LIMIT_S)
    told = printed(job, 0)
    assert result.succeeded, f"{result.reason}: {told}"
    assert [line.partition(":")[0] for line in told if line.startswith("epoch")] == [
        "epoch 1",
        "epoch 2",
        "epoch 3",
    ]
    again = [line for rank in (0, 1) for line in printed(job, rank) if line.startswith("goes on")]
    assert again
    assert set(again) == {"goes on after epoch 2"}


def test_a_script_that_fails_is_started_again_and_then_fails_the_job(client: Client, tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text(FAILS)
    arguments = ["--max-restarts", "1", str(script), "--x", "a b; $HOME"]
    result = CliRunner().invoke(cli, ["--address", client.address, "run", *arguments])
    assert result.exit_code == 3, result.output
    assert result.stdout.splitlines().count("[1] ['--x', 'a b; $HOME'] ''") == 2
    assert "the script failed after 1 of 1 restarts: rank 1 on node-" in result.stderr
    assert "ended with status 3: there is no --x" in result.stderr
    job = client.jobs(limit=1)[0]
    assert (job.spec.task, job.generation, job.state) == ("fails.py", 2, "failed")
    assert job.script_run is not None
    assert (job.script_run.restarts, job.script_run.rank, job.script_run.exit_status) == (1, 1, 3)
    shown = CliRunner().invoke(cli, ["--address", client.address, "jobs", "show", job.id])
    assert "with status 3: there is no --x; started again 1 time" in " ".join(shown.stdout.split())
