"""The folder in which a script runs: its code, and what it has written there, which rank 0's is for all.

Nodes share no disk. So what rank 0 leaves in its working folder is stored as an artifact, as a whole and with
the code, and every rank begins with it when the script is started again; hidden files too, as checkpoints of
torch.distributed.checkpoint have one.
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from peerloom.artifacts.bundles import pack, packed_files, unpack
from peerloom.errors import DataLossError, InvalidArgumentError, NotFoundError, PeerloomError
from peerloom.kit.logs import get_logger
from peerloom.v1.artifact_pb2 import Artifact, ArtifactKind
from peerloom.worker.agent_artifacts import fetch_file, store_artifact
from peerloom.worker.assignment import Assignment

MAX_STORED_BYTES = 4 * 1024**3  # of all files together; a larger folder stays where it is
_Files = dict[str, tuple[int, int]]
_log = get_logger()


class WorkingFolder:
    """A worker's own; `path` has the job's code from the beginning."""

    def __init__(self, assignment: Assignment) -> None:
        self.path = Path(assignment.folder) / "script"
        self._assignment = assignment
        self._stored: _Files | None = None  # what the newest artifact has
        self._digest = ""
        self._artifact: Artifact | None = None

    def lay_out(self) -> None:
        """Unpacks the code, once. Raises NotFoundError, or DataLossError when it is damaged."""
        if self._stored is None:
            self._take(self._assignment.work.code_digest)

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
        """Replaces all by what this artifact has, unless it is what is there. Raises as `lay_out`."""
        if digest != self._digest or self._files() != self._stored:
            self._take(digest)

    def store(self) -> Artifact | None:
        """Stores the folder with the agent if it has changed; None when not, or if it can't be."""
        try:
            files = self._files()
            if files == self._stored:
                return None
            size_bytes = sum(size for size, _ in files.values())
            if size_bytes > MAX_STORED_BYTES:
                _log.warning("folder_too_large", size_bytes=size_bytes, limit_bytes=MAX_STORED_BYTES)
                return None
            return self._store(files)
        except (OSError, PeerloomError) as error:  # e.g. a file that the script removed meanwhile
            _log.warning("folder_not_stored", reason=str(error))
            return None

    def newest(self) -> Artifact | None:
        """What was stored last, now if the folder has changed since; None for nothing but the code."""
        self._artifact = self.store() or self._artifact
        return self._artifact

    def _store(self, files: _Files) -> Artifact | None:
        with TemporaryDirectory(prefix="peerloom-", dir=self._assignment.folder) as folder:
            bundle = Path(folder) / "folder.tar"
            pack(self.path, bundle, hidden=True)
            if self._files() != files:
                return None  # a half-written file is nobody's checkpoint
            kind, name = ArtifactKind.ARTIFACT_KIND_CHECKPOINT, f"{self._assignment.job_id}.tar"
            stored = store_artifact(self._assignment, bundle, kind, name)
        self._stored, self._digest, self._artifact = files, stored.digest, stored
        return stored

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
        self._stored, self._digest, self._artifact = self._files(), digest, None

    def _files(self) -> _Files:
        """Size and time of each file that `pack` takes."""
        found: _Files = {}
        for path in packed_files(self.path, hidden=True):
            status = path.stat()
            found[str(path.relative_to(self.path))] = (status.st_size, status.st_mtime_ns)
        return found
