"""How those who lack the newest state get it: from a broadcast that all wait for, or by catching up.

A broadcast stops everybody for as long as the state takes to travel. To catch up (`catch_up`) a newcomer
enters the group at once, without a share of the batch, and gets the state as of its entry while the
training goes on; when it has caught up, and its parameters have the same fingerprint as the others', it gets
a share.
"""

import math
from collections.abc import Callable

import torch

from peerloom.errors import UnavailableError
from peerloom.kit.logs import get_logger
from peerloom.worker.group.process_group import Group, all_gather_rows
from peerloom.worker.group.waits import GenerationBrokenError
from peerloom.worker.joining.broadcast import plan_transfer, take_newest_state
from peerloom.worker.joining.catch_up import CatchUp, CatchUpState
from peerloom.worker.joining.streaming import ADDRESS_BYTES, StateDonor, StateReceiver
from peerloom.worker.schedule import Schedule
from peerloom.worker.training_state import TrainingState

CATCH_UP_PART = 0.5  # of a step, which the newcomer computes nothing else in
_log = get_logger()


class Joining:
    """Who of a generation takes part in full; the same on all ranks at each step boundary.

    `source` is the first rank that had the newest state from the beginning, and so made all steps before it;
    `on_admitted` is called when this worker, a newcomer, has caught up.
    """

    def __init__(
        self,
        group: Group,
        state: TrainingState,
        newcomers: frozenset[int] = frozenset(),
        catch_up: CatchUp | None = None,
        donor: StateDonor | None = None,
        on_admitted: Callable[[], None] = lambda: None,
        source: int = 0,
    ) -> None:
        self.newcomers = newcomers
        self._group = group
        self._state = state
        self._catch_up = catch_up
        self._donor = donor
        self.source = source
        self._on_admitted = on_admitted
        self._claims: dict[int, int] = {}  # fingerprints of newcomers that had caught up after the last step
        self._own_print = 0  # ours of then, if there were any

    @property
    def catch_up(self) -> CatchUp | None:
        """This worker's catching up; None when it takes part in full."""
        return self._catch_up

    @property
    def step(self) -> int:
        """Steps that the group has committed."""
        return self._catch_up.step if self._catch_up is not None else self._state.step

    @property
    def evaluated(self) -> int:
        """Epochs that the group has measured."""
        return self._catch_up.evaluated if self._catch_up is not None else self._state.evaluated

    def shares(self, shares: list[int]) -> list[int]:
        """The shares of now: nothing for newcomers."""
        return [0 if rank in self.newcomers else share for rank, share in enumerate(shares)]

    def turn(self) -> tuple[int, int] | None:
        """This worker's place among those who measure an epoch, and their number; None for a newcomer."""
        if self._catch_up is not None:
            return None
        before = sum(1 for rank in range(self._group.rank) if rank not in self.newcomers)
        return before, self._group.world_size - len(self.newcomers)

    def after_step(self, step_s: float, is_last: bool) -> None:
        """Admits whoever has caught up; whoever can't gets the state from a broadcast, as do all at the end.

        One exchange: a newcomer claims its parameters with their fingerprint, and hears that of the others a
        step later. Raises RuntimeError when a peer is lost, GenerationBrokenError when the group breaks.
        """
        if not self.newcomers:
            return
        if self._catch_up is not None:
            self._catch_up.replay(CATCH_UP_PART * step_s)
            own = self._catch_up.state
            self._own_print = self._state.fingerprint() if own == CatchUpState.CAUGHT_UP else 0
        else:
            own = CatchUpState.CAUGHT_UP
        rows = [
            (int(row[0]), int(row[1]))
            for row in all_gather_rows(self._group, [own, self._own_print], torch.int64)
        ]
        claims, true_print = self._claims, rows[self.source][1]
        self._claims = {
            rank: rows[rank][1] for rank in self.newcomers if rows[rank][0] == CatchUpState.CAUGHT_UP
        }
        wrong = sorted(rank for rank, claimed in claims.items() if claimed != true_print)
        if any(state == CatchUpState.LOST_TRACK for state, _ in rows):
            self._broadcast("a newcomer lost track")
        elif wrong:
            self._broadcast(f"the parameters of rank {wrong[0]} came out different")
        elif proven := set(claims) & set(self._claims):
            self._note_admitted(proven)
        if is_last and self.newcomers:
            self._broadcast("the training is over")
        self._claims = {rank: claimed for rank, claimed in self._claims.items() if rank in self.newcomers}
        if self._catch_up is None:
            self._own_print = self._state.fingerprint() if self._claims else 0

    def close(self) -> None:
        """The generation is over."""
        if self._catch_up is not None:
            self._catch_up.close()
        if self._donor is not None:
            self._donor.close()

    def _broadcast(self, reason: str) -> None:
        lost = self._catch_up.lost_track if self._catch_up is not None else ""
        _log.warning("state_broadcast", step=self.step, reason=reason, lost_track=lost)
        self._group.expect(math.inf)  # all wait for as long as it takes
        take_newest_state(self._state, self._group, self.source)
        self._note_admitted(set(self.newcomers))

    def _note_admitted(self, ranks: set[int]) -> None:
        _log.info("newcomers_admitted", ranks=sorted(ranks), step=self.step)
        self.newcomers -= ranks
        if self._catch_up is not None and self._group.rank in ranks:
            kept = self._catch_up.most_kept
            _log.info("caught_up", step=self._state.step, most_kept=kept)
            self._catch_up.close()
            self._catch_up = None
            self._on_admitted()
        if not self.newcomers:
            self.close()


def agree_on_beginning(state: TrainingState, group: Group) -> None:
    """All take rank 0's parameters if any has others: before the first step, of models that nobody seeded.

    After that, and alone, it does nothing. Raises GenerationBrokenError when the group breaks.
    """
    if state.step or group.world_size == 1:
        return
    try:
        rows = all_gather_rows(group, [state.fingerprint()], torch.int64)
    except RuntimeError as error:
        raise group.broken(error) from error
    prints = {row[0] for row in rows}
    if len(prints) > 1:
        _log.warning("beginnings_differed", parameters=len(prints))
        take_newest_state(state, group, 0)


def begin_joining(
    state: TrainingState,
    schedule: Schedule,
    group: Group,
    newcomers: int,
    host: str,
    step_s: float,
    on_admitted: Callable[[], None],
) -> Joining:
    """Finds out who lacks the state that counts, and begins to give it to them; `host` is where to listen for
    them.

    So many of the last ranks lack it even if they are as far, `newcomers`: who was left behind may have made
    its last steps in an older generation, with other shares, and have other last digits. `step_s` is what a
    step has taken here, 0 if unknown. Raises RuntimeError when a peer is lost, GenerationBrokenError when the
    group breaks.
    """
    donor = _open_donor(host, group) if state.step else None
    try:
        plan = plan_transfer(state.size_bytes(), group.bytes_per_s, step_s)
        # What is registered changes in the user's own code, which who catches up doesn't run.
        own = [state.step, state.evaluated, int(plan.catches_up and not state.registered)]
        rows = all_gather_rows(group, [*own, *_padded(donor)], torch.int64)
    except (RuntimeError, GenerationBrokenError):
        _close(donor)
        raise
    newest = max(row[0] for row in rows)
    furthest = [rank for rank, row in enumerate(rows) if row[0] == newest]
    members = [rank for rank in furthest if rank < group.world_size - newcomers] or furthest
    lacking = frozenset(range(group.world_size)) - set(members)
    # The last ones give first: rank 0 also writes checkpoints.
    gives = {rank: members[-1 - i % len(members)] for i, rank in enumerate(sorted(lacking))}
    addresses = {rank: bytes(int(n) for n in rows[giver][3:]).rstrip(b"\0") for rank, giver in gives.items()}
    if lacking and group.rank == members[0]:  # whose state is taken decides
        _log.info("transfer_planned", catches_up=plan.catches_up, reason=plan.reason)
    # Without a step to come there would be nothing to record.
    catches_up = bool(rows[members[0]][2]) and newest < schedule.total_steps and all(addresses.values())
    if not lacking or not catches_up or group.rank not in gives.values():
        _close(donor)
        donor = None
    if not lacking:
        return Joining(group, state)
    if not catches_up:
        take_newest_state(state, group, members[0])
        return Joining(group, state, source=members[0])
    if donor is not None:
        donor.give(state.copy())
    catch_up = None
    if group.rank in lacking:
        receiver = StateReceiver(addresses[group.rank], group.tls)
        catch_up = CatchUp(state, schedule, receiver, int(newest), int(rows[members[0]][1]))
    return Joining(group, state, lacking, catch_up, donor, on_admitted, members[0])


def _open_donor(host: str, group: Group) -> StateDonor | None:
    try:
        return StateDonor(host, group.tls, group.forward)
    except (OSError, UnavailableError) as error:
        _log.warning("donor_not_opened", host=host, reason=str(error))
        return None


def _close(donor: StateDonor | None) -> None:
    if donor is not None:
        donor.close()


def _padded(donor: StateDonor | None) -> bytes:
    address = donor.address() if donor is not None else b""
    assert len(address) <= ADDRESS_BYTES, "an address and a token are shorter"
    return address.ljust(ADDRESS_BYTES, b"\0")
