"""Rank 0 gathers what the other ranks of a generation have written, which they tell it through the trainer.

Whoever is asked stores what it wrote with its own agent, from which rank 0's agent fetches it. Rank 0 looks
at its own files before it asks, and they count only if they are still so afterwards: then the others' parts
of a checkpoint that they speak of are there too.
"""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from peerloom.artifacts.bundles import unpack
from peerloom.errors import PeerloomError, UnavailableError
from peerloom.kit.logs import get_logger
from peerloom.v1.artifact_pb2 import Artifact, ArtifactHolder
from peerloom.v1.trainer_pb2 import ConfigureGeneration
from peerloom.worker.agent_artifacts import bring_file
from peerloom.worker.assignment import Assignment
from peerloom.worker.script.working_folder import WorkingFolder
from peerloom.worker.script.written_files import FileStates
from peerloom.worker.store_entries import StoreEntries

ANSWER_LIMIT_S = 120.0  # they may have gigabytes to store
BREAK_LIMIT_S = 5.0  # after a break, where whoever is lost never answers
_LOOKS = 3  # the first may take long, as there is something to fetch; the next ones don't
_FOREVER_S = 1e8
_ASKED, _WRITTEN, _NOTHING, _FAILED = "files asked", "files of {}", "-", "!"
_log = get_logger()


class Answering:
    """A rank that isn't 0: tells what it has written whenever it is asked, until it is closed."""

    def __init__(
        self, assignment: Assignment, folder: WorkingFolder, entries: StoreEntries, rank: int
    ) -> None:
        self._folder, self._entries, self._rank = folder, entries, rank
        self._address = assignment.agent_address
        self._answered, self._closed = 0, False
        self._thread = threading.Thread(target=self._run, name="written-files", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answers no more; returns when nothing of the folder is read."""
        self._closed = True
        self._entries.wake()
        self._thread.join()

    def _run(self) -> None:
        try:
            while (asked := self._entries.wait(_ASKED, self._is_due, _FOREVER_S)) and not self._closed:
                self._answered = int(asked)
                value = f"{self._answered} {self._digest()} {self._address}"
                self._entries.set(_WRITTEN.format(self._rank), value.encode())
        except RuntimeError:
            pass  # a generation of long ago

    def _is_due(self, asked: bytes | None) -> bool:
        return self._closed or int(asked or 0) > self._answered

    def _digest(self) -> str:
        try:
            stored = self._folder.store_written()
        except (OSError, PeerloomError) as error:  # e.g. a file that the script removed meanwhile
            _log.warning("files_not_stored", reason=str(error))
            return _FAILED
        return stored.digest if stored is not None else _NOTHING


class Gathering:
    """Rank 0 of a generation: stores its folder together with what the others wrote."""

    def __init__(
        self,
        assignment: Assignment,
        folder: WorkingFolder,
        entries: StoreEntries,
        config: ConfigureGeneration,
    ) -> None:
        self._assignment, self._folder, self._entries, self._config = assignment, folder, entries, config
        self._asked, self._is_closed, self._is_broken = 0, False, False
        self._taken: dict[int, tuple[str, Path]] = {}

    def store(self) -> Artifact | None:
        """Stores all that was written; None if nothing has changed, or some rank doesn't answer."""
        for _ in range(_LOOKS):
            looked = self._looked()
            if looked is None or not self._gather(lambda: self._is_closed or self._is_broken):
                return None
            if not self._taken or self._looked() == looked:
                return self._folder.store(self._others())
        return None

    def close(self) -> None:
        """Ends a `store` that another thread is in."""
        self._is_closed = True
        self._entries.wake()

    def broke(self) -> None:
        """The generation broke: whom another thread waits for may be the one that is lost."""
        self._is_broken = True
        self._entries.wake()

    def last(self, *, is_broken: bool) -> Artifact | None:
        """What the script's next start begins with, or what it leaves; None for nothing but its code.

        After a break some rank may never answer, and is waited for a few seconds. If others have written,
        what was gathered before counts then: rank 0's newer files may speak of some that are lost.
        """
        if not is_broken:
            self._gather(lambda: self._is_broken)
        if not is_broken and not self._is_broken:
            return self._folder.newest(self._others())
        # Nothing else ends this: others answer after their end too, and a break is told while one is at it.
        if self._taken or not self._folder.is_complete():
            if self._gather(lambda: False, BREAK_LIMIT_S):
                self._folder.store(self._others())
            return self._folder.artifact
        return self._folder.newest(self._others())

    def _gather(self, gives_up: Callable[[], bool], limit_s: float = ANSWER_LIMIT_S) -> bool:
        """Whether all have answered, before one `gives_up`, and what they wrote is here."""

        def is_due(value: bytes | None) -> bool:
            return gives_up() or (value is not None and self._is_answer(value))

        try:
            self._asked += 1
            self._entries.set(_ASKED, str(self._asked).encode())
            for rank in range(1, self._config.world_size):
                told = self._entries.wait(_WRITTEN.format(rank), is_due, limit_s)
                if told is None or not self._is_answer(told):
                    return False
                _, digest, address = told.decode().split(" ", 2)
                self._take(rank, digest, address)
        except (RuntimeError, OSError, PeerloomError) as error:
            _log.info("files_not_gathered", reason=str(error))
            return False
        return True

    def _is_answer(self, value: bytes) -> bool:
        return value.startswith(f"{self._asked} ".encode())

    def _take(self, rank: int, digest: str, address: str) -> None:
        taken, folder = self._taken.get(rank), self._folder.path.with_name(f"rank-{rank}")
        if digest == _FAILED:
            raise UnavailableError(f"Rank {rank} can't store what it wrote now; its worker's log says why.")
        if digest == _NOTHING or (taken is not None and taken[0] == digest):
            return
        shutil.rmtree(folder, ignore_errors=True)
        holder = ArtifactHolder(node_id=self._config.node_ids[rank], address=address)
        bundle = folder.with_suffix(".tar")
        try:
            bring_file(self._assignment, digest, holder, bundle)
            unpack(bundle, folder)
        finally:
            bundle.unlink(missing_ok=True)
        self._taken[rank] = digest, folder

    def _looked(self) -> FileStates | None:
        try:
            return self._folder.states()
        except OSError:  # a file that the script removed meanwhile
            return None

    def _others(self) -> list[Path]:
        return [folder for _, (_, folder) in sorted(self._taken.items())]
