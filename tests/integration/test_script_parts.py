"""A script's files, its process with all that this starts, and what is sent of it."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from peerloom import ScriptSpec
from peerloom.artifacts.bundles import pack, unpack
from peerloom.artifacts.transfer import digest_of
from peerloom.client.requests import script_spec
from peerloom.errors import InvalidArgumentError, NotFoundError, PermissionDeniedError
from peerloom.v1.artifact_pb2 import Artifact
from peerloom.v1.trainer_pb2 import ConfigureGeneration, StoreEntry
from peerloom.worker.assignment import Assignment, Work
from peerloom.worker.script import gathering, working_folder
from peerloom.worker.script.gathering import Gathering
from peerloom.worker.script.script_worker import check_may_be_plain
from peerloom.worker.script.working_folder import WorkingFolder
from peerloom.worker.script.written_files import files_in
from peerloom.worker.store_entries import StoreEntries

LIMIT_S = 60.0
HOLDER = Path(__file__).with_name("script_holder.py")
LEAVES_A_CHILD = """
import signal
import subprocess
import sys

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print("child", child.pid)
print("on its way", file=sys.stderr)
print("ready")
signal.sigwait([signal.SIGTERM])
print("stored", sys.argv[1])
sys.exit(7)
"""
STAYS = """
import signal

signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready")
while True:
    signal.pause()
"""


class Agent:
    """Keeps artifacts in a folder, in place of a node's agent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.fetched: list[str] = []
        folder.mkdir()

    def store(self, _: Assignment, path: Path, *__: object) -> Artifact:
        digest = digest_of(path)
        shutil.copy(path, self._folder / digest)
        return Artifact(digest=digest)

    def fetch(self, _: Assignment, digest: str, path: Path) -> None:
        self.fetched.append(digest)
        shutil.copy(self._folder / digest, path)

    def bring(self, told: Assignment, digest: str, _: object, path: Path) -> None:
        self.fetch(told, digest, path)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    agent = Agent(tmp_path / "kept")
    monkeypatch.setattr(working_folder, "store_artifact", agent.store)
    monkeypatch.setattr(working_folder, "fetch_file", agent.fetch)
    monkeypatch.setattr(gathering, "bring_file", agent.bring)
    return agent


@pytest.fixture
def code(tmp_path: Path, agent: Agent) -> str:
    """The digest of a bundle with a good and a bad script."""
    folder = tmp_path / "code"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "train.py").write_text("print(1)\n")
    (folder / "bad.py").write_text("print 1\n")
    pack(folder, tmp_path / "code.tar")
    return agent.store(cast(Any, None), tmp_path / "code.tar").digest


def folder_of(name: str, tmp_path: Path, code: str) -> WorkingFolder:
    """A worker's working folder, laid out."""
    (tmp_path / name).mkdir()
    work = Work("127.0.0.1:1", "sub/train.py", {}, code, "", [])
    told = Assignment("worker-1", "job-1", work, "127.0.0.1:1", 0, "cpu", 0, "lo", 1, "", "5" * 64)
    folder = WorkingFolder(cast(Any, told).__class__(**{**vars(told), "folder": str(tmp_path / name)}))
    folder.lay_out()
    return folder


def test_a_script_is_found_in_its_bundle_and_has_to_be_python(tmp_path: Path, code: str) -> None:
    folder = folder_of("one", tmp_path, code)
    assert folder.script("sub/train.py").read_text() == "print(1)\n"
    with pytest.raises(NotFoundError, match=r"sub/train\.py"):
        folder.script("sub/trian.py")
    with pytest.raises(InvalidArgumentError, match="isn't Python that this node understands"):
        folder.script("bad.py")


def test_what_rank_0_leaves_is_what_all_begin_with(tmp_path: Path, code: str, agent: Agent) -> None:
    first, second = folder_of("one", tmp_path, code), folder_of("two", tmp_path, code)
    assert first.store() is None, "nothing was written"
    (first.path / "checkpoint.pt").write_bytes(b"step 7")
    (first.path / ".cache").write_bytes(b"hidden")
    (second.path / "own.txt").write_text("of a rank that isn't 0")
    stored = first.store()
    assert stored is not None
    assert first.store() is None, "it is stored already"
    assert first.newest() == stored, "and is told again"
    agent.fetched.clear()
    for folder in (first, second):
        folder.begin_with(stored.digest)
        assert (folder.path / "checkpoint.pt").read_bytes() == b"step 7"
        assert (folder.path / "sub" / "train.py").exists()
    assert agent.fetched == [stored.digest], "who has it fetches nothing"
    assert second.newest() is None, "what it began with is kept elsewhere"
    assert not (second.path / "own.txt").exists()
    (first.path / "checkpoint.pt").unlink()
    first.begin_with(stored.digest)
    assert (first.path / "checkpoint.pt").read_bytes() == b"step 7"


def checkpoint_in_two(tmp_path: Path, code: str) -> tuple[WorkingFolder, WorkingFolder]:
    """The folders of ranks 0 and 1, each with its own part of a checkpoint."""
    first, second = folder_of("one", tmp_path, code), folder_of("two", tmp_path, code)
    for folder, part in ((first, "__0_0.distcp"), (second, "__1_0.distcp")):
        (folder.path / "saved").mkdir()
        (folder.path / "saved" / part).write_bytes(part.encode())
    (first.path / "saved" / ".metadata").write_bytes(b"__0_0.distcp and __1_0.distcp")
    return first, second


def test_what_others_wrote_is_stored_beside_and_half_a_checkpoint_is_not(
    tmp_path: Path, code: str, agent: Agent
) -> None:
    """Rank 1 wrote a part that the metadata of rank 0 name; without it rank 0 keeps nothing of it."""
    first, second = checkpoint_in_two(tmp_path, code)
    assert first.store() is None
    written = second.store_written()
    assert written is not None
    assert second.store_written() == written, "it is stored already"
    agent.fetch(cast(Any, None), written.digest, tmp_path / "written.tar")
    unpack(tmp_path / "written.tar", tmp_path / "written")
    assert files_in(tmp_path / "written").keys() == {"saved/__1_0.distcp"}, "what all began with stays out"
    stored = first.store([tmp_path / "written"])
    assert stored is not None
    for folder in (first, second):
        folder.begin_with(stored.digest)
        assert (folder.path / "saved" / "__1_0.distcp").read_bytes() == b"__1_0.distcp"
        assert folder.store_written() is None
    (first.path / "saved" / "__1_0.distcp").unlink()
    first.begin_with("")
    assert files_in(first.path).keys() == {"bad.py", "sub/train.py"}, "nobody can load the rest"


class Asking(StoreEntries):
    """Of which one is answered only while it is waited for, after something else happened."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        super().__init__(1, self.heard)
        self._answer = answer
        self.meanwhile: Callable[[], None] = lambda: None

    def wait(self, key: str, is_due: Callable[[bytes | None], bool], limit_s: float) -> bytes | None:
        self.meanwhile()
        told = StoreEntry(generation=1, key=key, value=self._answer(self.get("files asked", LIMIT_S)))
        answering = threading.Timer(0, self.heard, (told,))

        def is_waited_for(value: bytes | None) -> bool:
            if not (is_over := is_due(value)) and not answering.ident:
                answering.start()
            return is_over

        return super().wait(key, is_waited_for, limit_s)

    def get(self, key: str, limit_s: float) -> bytes:
        return super().wait(key, lambda value: value is not None, limit_s) or b""


@pytest.mark.parametrize("has_failed_too", [True, False])
def test_a_break_told_while_the_last_files_are_gathered_loses_none(
    has_failed_too: bool, tmp_path: Path, code: str
) -> None:
    """Both ranks' scripts end at once: rank 0 hears of rank 1's failure when it asks for its part."""
    first, second = checkpoint_in_two(tmp_path, code)
    written = second.store_written()
    assert written is not None
    entries = Asking(lambda asked: b"%s %s 127.0.0.1:1" % (asked, written.digest.encode()))
    told, config = first._assignment, ConfigureGeneration(generation=1, world_size=2, node_ids=["a", "b"])
    gathered = Gathering(told, first, entries, config)
    entries.meanwhile = gathered.broke
    stored = gathered.last(is_broken=has_failed_too)
    assert stored is not None
    second.begin_with(stored.digest)
    assert files_in(second.path).keys() >= {"saved/.metadata", "saved/__0_0.distcp", "saved/__1_0.distcp"}


def test_of_a_break_that_takes_a_rank_no_half_checkpoint_is_left(
    tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0's script ended well, and rank 1 is lost with its part: rank 0 waits for it a moment."""
    monkeypatch.setattr(gathering, "BREAK_LIMIT_S", 0.01)
    first, _ = checkpoint_in_two(tmp_path, code)
    entries = Asking(lambda asked: b"")  # never an answer
    config = ConfigureGeneration(generation=1, world_size=2, node_ids=["a", "b"])
    gathered = Gathering(first._assignment, first, entries, config)
    entries.meanwhile = gathered.broke
    assert gathered.last(is_broken=False) is None


def test_a_folder_that_is_too_large_stays_where_it_is(
    tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of("one", tmp_path, code)
    (folder.path / "large").write_bytes(b"x" * 100)
    monkeypatch.setattr(working_folder, "MAX_STORED_BYTES", 100)
    assert folder.store() is None


def ended(script: str, tmp_path: Path, grace_s: float) -> dict[str, Any]:
    """What came of a script that was told to end."""
    path = tmp_path / "script.py"
    path.write_text(script)
    command = [sys.executable, str(HOLDER), str(path), str(grace_s)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    return cast(dict[str, Any], json.loads(done.stdout))


def test_a_process_that_is_told_to_end_may_store_what_it_has_and_leaves_nobody(tmp_path: Path) -> None:
    came = ended(LEAVES_A_CHILD, tmp_path, grace_s=LIMIT_S)
    assert came["status"] == 7
    assert "[1:out] stored a b" in came["lines"]
    assert came["last_lines"] == "on its way"
    child = next(int(line.split()[-1]) for line in came["lines"] if " child " in line)
    assert not psutil.pid_exists(child)


def test_a_process_that_does_not_end_is_killed(tmp_path: Path) -> None:
    assert ended(STAYS, tmp_path, grace_s=0.1)["status"] == -9


def test_only_where_all_is_plain_a_script_s_gradients_travel() -> None:
    check_may_be_plain(is_tls=False, world_size=2)
    check_may_be_plain(is_tls=True, world_size=1)
    with pytest.raises(PermissionDeniedError, match="--plain-collectives") as caught:
        check_may_be_plain(is_tls=True, world_size=2)
    assert caught.value.reason == "SCRIPT_IS_PLAIN"


class Artifacts:
    """Takes what is put in, and notes the names of its files."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def put(self, folder: Path, kind: str) -> Artifact:
        assert kind == "code"
        self.names = sorted(os.listdir(folder))
        return Artifact(digest="c" * 64)

    async def resolve(self, digest: str) -> str:
        return digest * 64


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    folder = tmp_path / "scripts"
    folder.mkdir()
    for name in ("train.py", "model.py", "notes.txt", ".hidden.py"):
        (folder / name).write_text("")
    return folder


async def test_a_script_is_sent_alone_or_with_its_folder(scripts: Path) -> None:
    artifacts = cast(Any, Artifacts())
    alone = await script_spec(ScriptSpec(scripts / "train.py", ["--x", "é"], requests=2), artifacts)
    assert (alone.task, artifacts.names) == ("train.py", ["train.py"])
    assert (list(alone.script.arguments), alone.request_budget) == (["--x", "é"], 2)
    assert not alone.script.HasField("max_restarts")
    with_others = await script_spec(ScriptSpec(scripts / "train.py", code=scripts.parent), artifacts)
    assert (with_others.task, with_others.code_digest) == ("scripts/train.py", "c" * 64)
    known = await script_spec(ScriptSpec("sub/train.py", code="d", max_restarts=0), artifacts)
    assert (known.task, known.code_digest, known.script.max_restarts) == ("sub/train.py", "d" * 64, 0)


@pytest.mark.parametrize(
    ("script", "given", "field"),
    [
        ("missing.py", {}, "script"),
        ("notes.txt", {}, "script"),
        (".hidden.py", {}, "script"),
        ("", {}, "script"),
        ("train.py", {"code": "/usr"}, "script"),
        ("train.py", {"requests": 0}, "requests"),
        ("train.py", {"max_restarts": 1001}, "max_restarts"),
        ("train.py", {"script_arguments": ["\udcff"]}, "script_arguments"),
    ],
)
async def test_what_can_t_be_sent_is_refused_by_its_name(
    scripts: Path, script: str, given: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await script_spec(ScriptSpec(scripts / script, **given), cast(Any, Artifacts()))
    assert caught.value.metadata["field"] == field
