"""Which trainer runs each job, so that workers that one trainer started follow the one that took over."""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from peerloom.artifacts.disk import disk_errors
from peerloom.errors import FailedPreconditionError
from peerloom.kit.identity import write_private
from peerloom.kit.logs import get_logger
from peerloom.worker.assignment import TRAINER_FILE

_JOBS_REMEMBERED = 1000
_log = get_logger()


@dataclass(frozen=True)
class JobTrainer:
    """A trainer (host:port), and the epoch of the lease that it holds."""

    address: str
    epoch: int


class JobTrainers:
    """The trainer of the highest epoch that named itself for each job; the newest 1,000 jobs."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, JobTrainer] = OrderedDict()
        self._watches = Counter[str]()
        self._telling = Lock()

    def check(self, job_id: str, epoch: int) -> None:
        """Raises FailedPreconditionError (TRAINER_DEPOSED) when a later trainer than this runs the job."""
        known = self._known.get(job_id)
        if known is not None and epoch < known.epoch:
            raise FailedPreconditionError(
                f"{job_id} is run by the trainer at {known.address}, which took the lease with epoch "
                f"{known.epoch}; what one of epoch {epoch} asks for is refused.",
                reason="TRAINER_DEPOSED",
                metadata={"trainer": known.address, "epoch": str(known.epoch)},
            )

    def follow(self, job_id: str, trainer: JobTrainer) -> None:
        """From now on this trainer runs the job. Raises as `check`."""
        self.check(job_id, trainer.epoch)
        if self._known.get(job_id) != trainer:
            _log.info("trainer_followed", job_id=job_id, trainer=trainer.address, epoch=trainer.epoch)
        self._known[job_id] = trainer
        self._known.move_to_end(job_id)
        while len(self._known) > _JOBS_REMEMBERED:
            self._known.popitem(last=False)

    @contextmanager
    def watching(self, job_id: str) -> Iterator[None]:
        """Meanwhile a trainer hears of the job's workers."""
        self._watches[job_id] += 1
        try:
            yield
        finally:
            self._watches[job_id] -= 1
            if not self._watches[job_id]:
                del self._watches[job_id]

    def is_watched(self, job_id: str) -> bool:
        """Whether a trainer hears of the job's workers."""
        return job_id in self._watches

    def tell(self, job_id: str, folders: Iterable[Path]) -> None:
        """Says in these folders of the job's workers where its trainer is. Blocks.

        Raises ResourceExhaustedError or UnavailableError where the disk doesn't take it.
        """
        with self._telling:  # who writes last must have looked last
            if known := self._known.get(job_id):
                for folder in filter(Path.exists, folders):  # a worker that has ended has none
                    with disk_errors(folder):
                        write_private(folder / TRAINER_FILE, f"{known.address}\n".encode())
