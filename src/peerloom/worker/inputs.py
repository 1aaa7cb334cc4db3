"""What a job brings along: data sets named as arguments, and code; its node's agent has them already."""

import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from peerloom.artifacts.bundles import is_bundle, unpack
from peerloom.kit.job_inputs import digest_in
from peerloom.worker.agent_artifacts import fetch_file
from peerloom.worker.assignment import Assignment


class Inputs:
    """The files, in a folder of this worker's own that goes with it."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._folder = TemporaryDirectory(prefix="peerloom-inputs-")

    def bring(self) -> Mapping[str, str]:
        """The task's arguments with paths in place of artifacts; the job's code can be imported then.

        Raises NotFoundError when the agent lacks one, DataLossError for a bundle that can't be unpacked.
        """
        work = self._assignment.work
        if work.code_digest:
            sys.path.insert(0, str(self._path(work.code_digest)))
        arguments = dict(work.task_arguments)
        for name, value in arguments.items():
            if digest := digest_in(value):
                arguments[name] = str(self._path(digest))
        return arguments

    def close(self) -> None:
        """Removes the files."""
        self._folder.cleanup()

    def _path(self, digest: str) -> Path:
        path = Path(self._folder.name) / digest[:16]
        if path.exists():
            return path
        fetched = path.with_suffix(".fetched")
        fetch_file(self._assignment, digest, fetched)
        if not is_bundle(fetched):
            return fetched.rename(path)
        unpacked = path.with_suffix(".unpacked")
        unpack(fetched, unpacked)
        fetched.unlink()
        return unpacked.rename(path)
