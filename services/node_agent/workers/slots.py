"""Which slots are free, held for a job, or running a worker; knows no process and no clock of its own."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from peerloom.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from peerloom.kit.ids import ReservationId, new_reservation_id
from peerloom.v1.common_pb2 import SlotCount
from peerloom.worker.assignment import Work

_REMEMBERED = 1000


@dataclass
class Reservation:
    """Slots that were accepted for a job. `worker_ids` is empty until its workers are started."""

    reservation_id: ReservationId
    job_id: str
    request_id: str
    work: Work
    slots: tuple[int, ...]
    memory_bytes: int
    expires_s: float
    worker_ids: tuple[str, ...] = ()


class SlotTable:
    """The slots 0 to total - 1. `on_change` is called when the number of free ones may have changed."""

    def __init__(self, total: int, on_change: Callable[[], None] = lambda: None) -> None:
        self.total = total
        self._on_change = on_change
        self._reservations: OrderedDict[str, Reservation] = OrderedDict()
        self._running: dict[int, Reservation] = {}

    def free(self, now_s: float) -> list[int]:
        """The slots that nothing holds at `now_s` (monotonic seconds), lowest first."""
        taken = set(self._running)
        for waiting in self._waiting(now_s):
            taken.update(waiting.slots)
        return [slot for slot in range(self.total) if slot not in taken]

    def reserve(
        self,
        job_id: str,
        request_id: str,
        work: Work,
        count: int,
        memory_bytes: int,
        now_s: float,
        hold_s: float,
    ) -> Reservation:
        """Holds `count` free slots for `hold_s` seconds; the caller has checked that there are so many.

        Workers that are started in them get this `work`.
        """
        slots = self.free(now_s)[:count]
        assert len(slots) == count, "more slots were accepted than are free"
        made = Reservation(
            new_reservation_id(), job_id, request_id, work, tuple(slots), memory_bytes, now_s + hold_s
        )
        self._reservations[made.reservation_id] = made
        self._forget(now_s)
        self._on_change()
        return made

    def is_held_for(self, job_id: str, now_s: float) -> bool:
        """Whether slots are reserved for a job, or run its workers."""
        stands = (known for known in self._reservations.values() if self._stands(known, now_s))
        return any(known.job_id == job_id for known in stands)

    def find_request(self, request_id: str, now_s: float) -> Reservation | None:
        """What an earlier request of the same id was given, as long as it holds or runs."""
        for known in self._reservations.values():
            if request_id and known.request_id == request_id and self._stands(known, now_s):
                return known
        return None

    def start(self, reservation_id: str, worker_ids: Sequence[str], now_s: float) -> tuple[Reservation, bool]:
        """Turns a held reservation into running slots, one for each worker; slots beyond become free.

        True when it had been started before with the same workers. Raises NotFoundError after its time,
        InvalidArgumentError for too many or repeated workers, FailedPreconditionError for others than before.
        """
        known = self._reservations.get(reservation_id)
        if known is None or not (known.worker_ids or known.expires_s > now_s):
            raise NotFoundError(
                f"The reservation {reservation_id!r} isn't here or its time has passed. Request work again.",
                reason="RESERVATION_NOT_FOUND",
            )
        if known.worker_ids:
            if known.worker_ids != tuple(worker_ids):
                raise FailedPreconditionError(
                    f"The reservation {reservation_id} was started before with other workers.",
                    reason="RESERVATION_USED",
                )
            return known, True
        if not 1 <= len(worker_ids) <= len(known.slots) or len(set(worker_ids)) < len(worker_ids):
            limit = f"1 to {len(known.slots)} different ids, as many as slots were reserved"
            raise InvalidArgumentError.of_field("worker_ids", f"{len(worker_ids)} ids", limit)
        known.worker_ids = tuple(worker_ids)
        known.slots = known.slots[: len(worker_ids)]
        for slot in known.slots:
            self._running[slot] = known
        self._on_change()
        return known, False

    def end(self, slot: int) -> None:
        """The worker in a running slot has ended."""
        del self._running[slot]
        self._on_change()

    def undo(self, held: Reservation, started: int) -> None:
        """Only the first `started` workers came to run: frees the other slots, and a repeat finds nothing."""
        del self._reservations[held.reservation_id]
        for slot in held.slots[started:]:
            self.end(slot)

    def cancel(self, job_id: str) -> None:
        """Frees what is held for a job and isn't running."""
        for known in list(self._reservations.values()):
            if known.job_id == job_id and not known.worker_ids:
                del self._reservations[known.reservation_id]
        self._on_change()

    def count(self, now_s: float) -> SlotCount:
        """How many slots there are, and how many are free at `now_s`."""
        return SlotCount(total=self.total, free=len(self.free(now_s)))

    @property
    def running(self) -> int:
        """How many slots run a worker."""
        return len(self._running)

    def waiting_bytes(self, now_s: float) -> int:
        """Memory promised to workers that haven't started."""
        return sum(held.memory_bytes * len(held.slots) for held in self._waiting(now_s))

    def promised_bytes(self, now_s: float) -> int:
        """Memory promised to all workers, running or not."""
        return self.waiting_bytes(now_s) + sum(holder.memory_bytes for holder in self._running.values())

    def _waiting(self, now_s: float) -> list[Reservation]:
        return [r for r in self._reservations.values() if not r.worker_ids and r.expires_s > now_s]

    def _stands(self, known: Reservation, now_s: float) -> bool:
        if not known.worker_ids:
            return known.expires_s > now_s
        return any(self._running.get(slot) is known for slot in known.slots)

    def _forget(self, now_s: float) -> None:
        """Drops the oldest that neither hold nor run, so that memory stays bounded."""
        for known in list(self._reservations.values()):
            if len(self._reservations) <= _REMEMBERED:
                return
            if not self._stands(known, now_s):
                del self._reservations[known.reservation_id]
