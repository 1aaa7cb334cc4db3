"""When a process may take a service's lease from the one that held it, and when that one lets go.

The invariant: a leader that is cut from its database has let go before another process leads. Its last
renewal that succeeded began at b; the beat moved in the database at m, not before b; a standby first saw
that beat at s, not before m. The leader lets go `LEASE_S` after b by its own monotonic clock, and
`LETTING_GO_S` later the last of its calls has ended. A standby takes the lease `TAKE_AFTER_S` after s, or
later, by its own. So no clock is compared with another; they must only run about equally fast. What is
left,

    TAKE_AFTER_S - LEASE_S - LETTING_GO_S,

is for a leader whose event loop is late. A renewal whose success the leader doesn't know of counts for
nothing, whatever became of it in the database. A process that is frozen lets go when it wakes. Decisions
only.
"""

from dataclasses import dataclass

# Longer: a database may stand still for longer before its leader ends, and a lost one's standby leads later.
LEASE_S = 2.0
LETTING_GO_S = 0.5
TAKE_AFTER_S = 3.0
NO_EPOCH = 0  # of a process that doesn't hold the lease
LONGEST_LOOK_S = 0.25
LEASE_LOST = "LEASE_LOST"  # the reason that a process is given that writes without it


@dataclass(frozen=True)
class LeaseRow:
    """A lease as the database has it.

    `epoch` grows by one whenever the lease is taken, `beat` whenever its holder shows that it is there.
    `holder` is for people; `process` identifies the holder, see `liveness`.
    """

    epoch: int
    beat: int
    is_released: bool
    holder: str
    process: str


@dataclass(frozen=True)
class Sighting:
    """For how many seconds a lease was seen to rest as it is, the last time at `looked_s` (monotonic)."""

    epoch: int
    beat: int
    looked_s: float
    unmoved_s: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """Whether the lease may be taken, and why or why not."""

    may_take: bool
    reason: str


def see(before: Sighting | None, row: LeaseRow, now_s: float) -> Sighting:
    """What is known of a lease once its row was read at `now_s`.

    A look that took long counts as one of `LONGEST_LOOK_S`: while the database or the whole machine stood
    still the holder could show no life either.
    """
    if before is None or (before.epoch, before.beat) != (row.epoch, row.beat):
        return Sighting(row.epoch, row.beat, now_s)
    rested_s = min(now_s - before.looked_s, LONGEST_LOOK_S)
    return Sighting(row.epoch, row.beat, now_s, before.unmoved_s + rested_s)


def is_beating(before: LeaseRow, now: LeaseRow) -> bool:
    """Whether its holder was alive between two looks at a lease."""
    return now.epoch == before.epoch and now.beat != before.beat and not now.is_released


def left_s(renewed_s: float, now_s: float) -> float:
    """Seconds until a leader lets go whose last successful renewal began at `renewed_s`; 0 or less: now."""
    return renewed_s + LEASE_S - now_s


def judge(row: LeaseRow | None, *, is_dead: bool, unmoved_s: float) -> Verdict:
    """Whether a standby may take the lease.

    `is_dead` says that the holder is provably dead, `unmoved_s` for how many seconds we saw no beat of it.
    """
    if row is None:
        return Verdict(True, "nobody has held it before")
    if row.is_released:
        return Verdict(True, f"{row.holder} has released it")
    if is_dead:
        return Verdict(True, f"{row.holder} is dead")
    if unmoved_s >= TAKE_AFTER_S:
        return Verdict(True, f"{row.holder} has shown no life for {unmoved_s:.1f} s")
    return Verdict(False, f"{row.holder} holds the lease")
