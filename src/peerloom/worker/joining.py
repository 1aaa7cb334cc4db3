"""How those who lack the newest state get it: from a broadcast that all wait for, or by listening.

A broadcast stops everybody for as long as the state takes to travel. By listening (`listening`) a newcomer
enters the group at once, without a share of the batch, and gets the state as of its entry beside the
training; when it has caught up, and its parameters have the same fingerprint as the others', it gets a share.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from peerloom.kit.logs import get_logger
from peerloom.worker.exchange import exchange
from peerloom.worker.group import Group
from peerloom.worker.listening import CAUGHT_UP, LOST_TRACK, Listener
from peerloom.worker.schedule import Schedule
from peerloom.worker.state import TrainingState
from peerloom.worker.streaming import ADDRESS_BYTES, Donor, Receiver
from peerloom.worker.waits import GenerationBrokenError

SMALL_BYTES = 1 << 20  # soon there whatever the network
PART_OF_A_STEP = 0.5  # that a broadcast may take: opening the group's connections costs time too
CATCH_UP_PART = 0.5  # of a step, which the newcomer computes nothing else in
_log = get_logger()


@dataclass(frozen=True)
class Plan:
    """Whether newcomers listen, and why."""

    listens: bool
    reason: str


def plan_transfer(state_bytes: int, bytes_per_s: float, step_s: float) -> Plan:
    """Broadcast when the state travels in less than half a step, else listen; `step_s` 0: unknown."""
    if state_bytes < SMALL_BYTES:
        return Plan(False, f"the state has only {state_bytes:,} bytes")
    transfer_s = state_bytes / bytes_per_s if bytes_per_s > 0 else math.inf
    takes = f"{state_bytes:,} bytes at {bytes_per_s / 1e6:,.1f} MB/s take {transfer_s:.3f} s"
    if transfer_s <= PART_OF_A_STEP * step_s:
        return Plan(False, f"{takes}, less than half a step of {step_s:.3f} s")
    return Plan(True, f"{takes}, more than half a step of {step_s:.3f} s")


class Joining:
    """Who of a generation takes part in full; the same on all ranks at each step boundary.

    `source` is a rank that had the newest state from the beginning.
    """

    def __init__(
        self,
        group: Group,
        state: TrainingState,
        listeners: frozenset[int] = frozenset(),
        listener: Listener | None = None,
        donor: Donor | None = None,
    ) -> None:
        self.listeners = listeners
        self._group = group
        self._state = state
        self._listener = listener
        self._donor = donor
        self.source = min(set(range(group.world_size)) - listeners)
        self.on_admitted: Callable[[], None] = lambda: None
        self._claims: dict[int, int] = {}  # fingerprints of newcomers that had caught up after the last step
        self._own_print = 0  # ours of then, if there were any

    @property
    def listener(self) -> Listener | None:
        """This worker's ear; None when it takes part in full."""
        return self._listener

    @property
    def step(self) -> int:
        """Steps that the group has committed."""
        return self._listener.step if self._listener is not None else self._state.step

    @property
    def evaluated(self) -> int:
        """Epochs that the group has measured."""
        return self._listener.evaluated if self._listener is not None else self._state.evaluated

    def shares(self, shares: list[int]) -> list[int]:
        """The shares of now: nothing for those who listen."""
        return [0 if rank in self.listeners else share for rank, share in enumerate(shares)]

    def turn(self) -> tuple[int, int] | None:
        """This worker's place among those who measure an epoch, and their number; None for a listener."""
        if self._listener is not None:
            return None
        before = sum(1 for rank in range(self._group.rank) if rank not in self.listeners)
        return before, self._group.world_size - len(self.listeners)

    def after_step(self, step_s: float, is_last: bool) -> None:
        """Admits whoever has caught up; whoever can't gets the state from a broadcast, as do all at the end.

        One exchange: a newcomer claims its parameters with their fingerprint, and hears that of the others a
        step later. Raises RuntimeError when a peer is lost, GenerationBrokenError when the group breaks.
        """
        if not self.listeners:
            return
        if self._listener is not None:
            self._listener.catch_up(CATCH_UP_PART * step_s)
            own = self._listener.standing
            self._own_print = self._state.fingerprint() if own == CAUGHT_UP else 0
        else:
            own = CAUGHT_UP
        rows = [
            (int(row[0]), int(row[1])) for row in exchange(self._group, [own, self._own_print], torch.int64)
        ]
        claims, true_print = self._claims, rows[self.source][1]
        self._claims = {rank: rows[rank][1] for rank in self.listeners if rows[rank][0] == CAUGHT_UP}
        wrong = sorted(rank for rank, claimed in claims.items() if claimed != true_print)
        if any(standing == LOST_TRACK for standing, _ in rows):
            self._broadcast("a newcomer lost track")
        elif wrong:
            self._broadcast(f"the parameters of rank {wrong[0]} came out different")
        elif proven := set(claims) & set(self._claims):
            self._note_admitted(proven)
        if is_last and self.listeners:
            self._broadcast("the training is over")
        self._claims = {rank: claimed for rank, claimed in self._claims.items() if rank in self.listeners}
        if self._listener is None:
            self._own_print = self._state.fingerprint() if self._claims else 0

    def close(self) -> None:
        """The generation is over."""
        if self._listener is not None:
            self._listener.close()
        if self._donor is not None:
            self._donor.close()

    def _broadcast(self, reason: str) -> None:
        lost = self._listener.lost_track if self._listener is not None else ""
        _log.warning("state_broadcast", step=self.step, reason=reason, lost_track=lost)
        self._group.expect(math.inf)  # all wait for as long as it takes
        take_newest_state(self._state, self._group, self.source)
        self._note_admitted(set(self.listeners))

    def _note_admitted(self, ranks: set[int]) -> None:
        _log.info("newcomers_admitted", ranks=sorted(ranks), step=self.step)
        self.listeners -= ranks
        if self._listener is not None and self._group.rank in ranks:
            kept = self._listener.most_kept
            _log.info("caught_up", step=self._state.step, most_kept=kept)
            self._listener.close()
            self._listener = None
            self.on_admitted()
        if not self.listeners:
            self.close()


def begin_joining(
    state: TrainingState, schedule: Schedule, group: Group, host: str, step_s: float
) -> Joining:
    """Finds out who lacks the newest state, and begins to give it to them; `host` is where to listen.

    `step_s` is what a step has taken here, 0 if unknown. Raises RuntimeError when a peer is lost,
    GenerationBrokenError when the group breaks.
    """
    donor = _open_donor(host) if state.step else None
    try:
        plan = plan_transfer(state.size_bytes(), group.bytes_per_s, step_s)
        own = [state.step, state.evaluated, int(plan.listens)]
        rows = exchange(group, [*own, *_padded(donor)], torch.int64)
    except (RuntimeError, GenerationBrokenError):
        _close(donor)
        raise
    newest = max(row[0] for row in rows)
    members = [rank for rank, row in enumerate(rows) if row[0] == newest]
    listeners = frozenset(range(group.world_size)) - set(members)
    # The last ones give first: rank 0 also writes checkpoints.
    gives = {rank: members[-1 - i % len(members)] for i, rank in enumerate(sorted(listeners))}
    addresses = {rank: bytes(int(n) for n in rows[giver][3:]).rstrip(b"\0") for rank, giver in gives.items()}
    if listeners and group.rank == members[0]:  # whose state is taken decides
        _log.info("transfer_planned", listens=plan.listens, reason=plan.reason)
    # Without a step to come there would be nothing to hear.
    listens = bool(rows[members[0]][2]) and newest < schedule.total_steps and all(addresses.values())
    if not listeners or not listens or group.rank not in gives.values():
        _close(donor)
        donor = None
    if not listeners:
        return Joining(group, state)
    if not listens:
        take_newest_state(state, group, members[0])
        return Joining(group, state)
    if donor is not None:
        donor.give(state.copy())
    listener = None
    if group.rank in listeners:
        receiver = Receiver(addresses[group.rank])
        listener = Listener(state, schedule, receiver, int(newest), int(rows[members[0]][1]))
    return Joining(group, state, listeners, listener, donor)


def _open_donor(host: str) -> Donor | None:
    try:
        return Donor(host)
    except OSError as error:
        _log.warning("donor_not_opened", host=host, reason=str(error))
        return None


def _close(donor: Donor | None) -> None:
    if donor is not None:
        donor.close()


def _padded(donor: Donor | None) -> bytes:
    address = donor.address() if donor is not None else b""
    assert len(address) <= ADDRESS_BYTES, "an address and a token are shorter"
    return address.ljust(ADDRESS_BYTES, b"\0")


def take_newest_state(state: TrainingState, group: Group, source: int) -> None:
    """All take the state of rank `source`. Raises GenerationBrokenError when the group breaks."""
    try:
        data = state.to_bytes() if group.rank == source else b""
        size = torch.tensor([len(data)], dtype=torch.int64, device=group.device)
        group.wait(dist.broadcast(size, source, async_op=True))
        content = torch.zeros(int(size), dtype=torch.uint8)
        if data:
            content = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        content = content.to(group.device)
        group.wait(dist.broadcast(content, source, async_op=True))
    except RuntimeError as error:
        raise group.broken(error) from error
    group.check()
    if group.rank != source:
        state.from_bytes(content.cpu().numpy().tobytes())
