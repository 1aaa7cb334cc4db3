"""What a job brings along: data sets named as arguments, and code; its node's agent has them already."""

import sys
from collections.abc import Mapping
from pathlib import Path

from peerloom.artifacts.bundles import is_bundle, unpack
from peerloom.errors import PermissionDeniedError
from peerloom.kit.job_inputs import digest_in
from peerloom.worker.agent_artifacts import fetch_file
from peerloom.worker.assignment import Assignment
from peerloom.worker.data_roots import lent_path, path_arguments


class Inputs:
    """The files, in this worker's own folder; its agent removes that when the worker has ended."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self.code: Path | None = None  # the folder, once it was brought

    def bring(self) -> Mapping[str, str]:
        """The task's arguments with paths in place of artifacts; the job's code can be imported then.

        Paths on the node are those that links lead to. Raises PermissionDeniedError for one that the owner
        doesn't lend, NotFoundError when the agent lacks an artifact, DataLossError for a bundle that can't be
        unpacked.
        """
        work = self._assignment.work
        arguments = {**work.task_arguments, **self._lent_paths()}
        if work.code_digest:
            self.code = self._path(work.code_digest)
            if str(self.code) not in sys.path:  # a worker may begin anew under another plan
                sys.path.insert(0, str(self.code))
        for name, value in work.task_arguments.items():
            if digest := digest_in(value):
                arguments[name] = str(self._path(digest))
        return arguments

    def _lent_paths(self) -> dict[str, str]:
        # The agent looked before it took the work; a link may have been changed since.
        work, lent = self._assignment.work, {}
        for name, value in path_arguments(work.task, work.task_arguments).items():
            path = lent_path(value, self._assignment.data_roots)
            if path is None:
                raise PermissionDeniedError(f"{value!r} (argument {name}) isn't lent by this node's owner.")
            lent[name] = str(path)
        return lent

    def _path(self, digest: str) -> Path:
        path = Path(self._assignment.folder) / "inputs" / digest[:16]
        if path.exists():
            return path
        path.parent.mkdir(mode=0o700, exist_ok=True)
        fetched = path.with_suffix(".fetched")
        fetch_file(self._assignment, digest, fetched)
        if not is_bundle(fetched):
            return fetched.rename(path)
        unpacked = path.with_suffix(".unpacked")
        unpack(fetched, unpacked)
        fetched.unlink()
        return unpacked.rename(path)
