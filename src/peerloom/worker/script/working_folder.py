"""The folder in which a script runs: its code, and what it has written there.

Nodes share no disk. So what rank 0 has in its working folder, with what the others have written in theirs
(`gathering`), is stored as an artifact, as a whole and with the code, and every rank begins with it when the
script is started again; hidden files too, as checkpoints of torch.distributed.checkpoint have one.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from peerloom.artifacts.bundles import pack_files, unpack
from peerloom.errors import DataLossError, InvalidArgumentError, NotFoundError, PeerloomError
from peerloom.kit.logs import get_logger
from peerloom.v1.artifact_pb2 import Artifact, ArtifactKind
from peerloom.worker.agent_artifacts import fetch_file, store_artifact
from peerloom.worker.assignment import Assignment
from peerloom.worker.script.written_files import (
    FileStates,
    changed,
    files_in,
    is_complete,
    states_of,
    together,
)

MAX_STORED_BYTES = 4 * 1024**3  # of all files together; a larger folder stays where it is
_log = get_logger()


class WorkingFolder:
    """A worker's own; `path` has the job's code from the beginning."""

    def __init__(self, assignment: Assignment) -> None:
        self.path = Path(assignment.folder) / "script"
        self._assignment = assignment
        self._began: FileStates = {}  # as all ranks found it
        self._stored: FileStates | None = None  # what the newest artifact has
        self._digest = ""
        self._written: tuple[FileStates, Artifact] | None = None
        self.artifact: Artifact | None = None  # what was stored last; None for nothing but what it began with

    def lay_out(self) -> None:
        """Unpacks the code, once. Raises NotFoundError, or DataLossError when it is damaged."""
        if self._stored is None:
            self._take(self._assignment.work.code_digest)
            self._began = self.states()

    def script(self, name: str) -> Path:
        """The script's file. Raises NotFoundError with the nearest, InvalidArgumentError if broken."""
        path = self.path / name
        if not path.is_file():
            known = [str(file.relative_to(self.path)) for file in self.path.rglob("*.py")]
            raise NotFoundError.of_name("script", name, known)
        try:
            compile(path.read_bytes(), name, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            raise InvalidArgumentError(
                f"The script {name!r} isn't Python that this node understands: {error}.", reason="NOT_PYTHON"
            ) from error
        return path

    def begin_with(self, digest: str) -> None:
        """Replaces all by what this artifact has, unless it is what is there. Raises as `lay_out`.

        Without a digest what is there stays, unless it lacks parts of a checkpoint, which nobody can load.
        """
        if digest and (digest != self._digest or self.states() != self._stored):
            self._take(digest)
        elif not digest and not self.is_complete():
            self._take(self._assignment.work.code_digest)
        self._began = self.states()

    def states(self) -> FileStates:
        """Size and time of each file that is here now. Raises OSError when one goes meanwhile."""
        return states_of(files_in(self.path))

    def is_complete(self) -> bool:
        """Whether no checkpoint here speaks of files that aren't here."""
        return is_complete(files_in(self.path))

    def store(self, others: Sequence[Path] = (), *, may_lack_parts: bool = False) -> Artifact | None:
        """Stores it with the agent, and the files in `others`, which are what further ranks wrote.

        None if nothing has changed, or if it can't be stored as it is now.
        """
        try:
            own = files_in(self.path)
            before = states_of(own)
            files = together(own, changed(before, self._began), [files_in(other) for other in others])
            states = states_of(files)
            if states == self._stored or not _fits(states):
                return None
            if not may_lack_parts and not is_complete(files):
                _log.info("folder_lacks_parts")  # a rank is about to write them
                return None
            stored = self._pack(files)
            if self.states() != before:
                return None  # a half-written file is nobody's checkpoint
        except (OSError, PeerloomError) as error:  # e.g. a file that the script removed meanwhile
            _log.warning("folder_not_stored", reason=str(error))
            return None
        self._stored, self._digest, self.artifact = states, stored.digest, stored
        return stored

    def newest(self, others: Sequence[Path] = ()) -> Artifact | None:
        """What was stored last, now if anything has changed since; None for nothing but the code."""
        return self.store(others, may_lack_parts=True) or self.artifact

    def store_written(self) -> Artifact | None:
        """Stores what was written since all ranks found the same here; None for nothing.

        Raises OSError or a PeerloomError when it can't be stored.
        """
        files, now = files_in(self.path), self.states()
        written = {name: now[name] for name in changed(now, self._began)}
        if not written:
            return None
        if self._written is None or self._written[0] != written:
            self._written = written, self._pack({name: files[name] for name in written})
        return self._written[1]

    def _pack(self, files: Mapping[str, Path]) -> Artifact:
        with TemporaryDirectory(prefix="peerloom-", dir=self._assignment.folder) as folder:
            bundle = Path(folder) / "folder.tar"
            pack_files(self.path, files, bundle)
            kind, name = ArtifactKind.ARTIFACT_KIND_CHECKPOINT, f"{self._assignment.job_id}.tar"
            return store_artifact(self._assignment, bundle, kind, name)

    def _take(self, digest: str) -> None:
        fetched, fresh = self.path.with_suffix(".fetched"), self.path.with_suffix(".fresh")
        shutil.rmtree(fresh, ignore_errors=True)
        fetch_file(self._assignment, digest, fetched)
        try:
            unpack(fetched, fresh)
        except DataLossError:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        finally:
            fetched.unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)
        fresh.rename(self.path)
        # What begins here is stored where it came from.
        self._stored = self.states()
        self._digest, self._written, self.artifact = digest, None, None


def _fits(states: FileStates) -> bool:
    size_bytes = sum(size for size, _ in states.values())
    if size_bytes > MAX_STORED_BYTES:
        _log.warning("folder_too_large", size_bytes=size_bytes, limit_bytes=MAX_STORED_BYTES)
    return size_bytes <= MAX_STORED_BYTES
