"""What is known of candidates beyond belief and slots: faded sums, their owners', and whose turn it is."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from peerloom.services.selector.belief.track import HALF_LIFE_S, TRACK, open_exposure_s, worth

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]
# What is summed up over an owner's names; a sum costs time, and the other columns tell of one machine.
_POOLED = ("interruptions", "departures", "trainings", "unfinished", "session_logs", "session_log_squares")
UNKNOWN_BELOW = 0.5  # faded trainings and refusals: a single one counts as knowledge for one half-life


class Numbers(Protocol):
    """Columns over all nodes, whether they are candidates or not; NodeColumns is one."""

    def __len__(self) -> int: ...

    def number(self, name: str) -> Floats:
        """A column by name, see NodeColumns."""

    @property
    def owner(self) -> npt.NDArray[np.int32]:
        """The number of each node's owner."""

    @property
    def names_of_owner(self) -> npt.NDArray[np.int32]:
        """How many nodes each owner has."""

    @property
    def selections(self) -> int:
        """How many selections were made before this one."""


@dataclass(frozen=True)
class FadedSums:
    """Faded sums now, one entry a candidate; the exposure includes open sessions. See track.Track."""

    exposure_s: Floats
    interruptions: Floats
    departures: Floats
    trainings: Floats
    unfinished: Floats
    transfers: Floats
    transfer_s: Floats
    transfer_bytes: Floats
    speeds: Floats
    speed_total: Floats
    slots_given: Floats
    lies: Floats
    suspicion: Floats
    recent_speeds: Floats
    recent_speed_total: Floats
    session_logs: Floats
    session_log_squares: Floats

    def of(self, rows: Rows) -> "FadedSums":
        """The same for some of the candidates."""
        return FadedSums(**{name: getattr(self, name)[rows] for name in FadedSums.__dataclass_fields__})

    @property
    def work(self) -> Floats:
        """Facts about work asked of the node: trainings finished, and requests refused or not finished."""
        return self.trainings + self.unfinished


@dataclass(frozen=True)
class Past:
    """The candidates are `rows` of `numbers`, seen at `now_s` (seconds since 1970)."""

    numbers: Numbers
    rows: Rows
    now_s: float
    half_life_s: float = HALF_LIFE_S

    @classmethod
    def of_newcomers(cls, count: int) -> "Past":
        """Nodes of whom nothing is known."""
        return cls(_Nothing(count), np.arange(count), 0.0)

    @property
    def selections(self) -> int:
        """How many selections were made before this one."""
        return self.numbers.selections

    @cached_property
    def _is_all(self) -> bool:
        return len(self.rows) == len(self.numbers)

    def of_rows(self, column: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """The candidates' part of a column over all nodes."""
        return column if self._is_all else column[self.rows]

    def number(self, name: str) -> Floats:
        """A column of the candidates, as it stands; see NodeColumns."""
        return self.of_rows(self.numbers.number(name))  # type: ignore[return-value]  # float64 stays float64

    @cached_property
    def owner(self) -> npt.NDArray[np.int32]:
        """The number of each candidate's owner."""
        return self.of_rows(self.numbers.owner)  # type: ignore[return-value]  # int32 stays int32

    @cached_property
    def shares_owner(self) -> npt.NDArray[np.bool_]:
        """Who has an owner with other names, candidates or not."""
        return self.numbers.names_of_owner[self.owner] > 1

    @cached_property
    def record(self) -> FadedSums:
        """What is known of each candidate by itself."""
        still = worth(self.number("at_s"), self.now_s, self.half_life_s)
        faded = {name: self.number(name) * still for name in TRACK if name != "at_s"}
        faded["exposure_s"] += open_exposure_s(self.number("session_start_s"), self.now_s, self.half_life_s)
        return FadedSums(**faded)

    @cached_property
    def open_s(self) -> Floats:
        """For how long each candidate's session has been open, in seconds; 0: none is open."""
        open_s: Floats = np.nan_to_num(np.maximum(self.now_s - self.number("session_start_s"), 0.0), nan=0.0)
        return open_s

    @cached_property
    def taken_slots(self) -> Floats:
        """Slots that earlier selections probably took and no fact has freed yet."""
        taken: Floats = np.where(self.number("busy_until_s") > self.now_s, self.number("taken"), 0.0)
        return taken

    @cached_property
    def owner_record(self) -> FadedSums:
        """What is known of each candidate's owner: how sessions ended and how long they were, and work done.

        These are sums over all the owner's names, also those that are gone; all else is the candidate's own.
        """
        own = self.record
        if not self.shares_owner.any():
            return own
        shared = np.flatnonzero(self.numbers.names_of_owner[self.numbers.owner] > 1)
        all_names = Past(self.numbers, shared, self.now_s, self.half_life_s)
        total = len(self.numbers.names_of_owner)
        mine = np.flatnonzero(self.shares_owner)

        def pooled(name: str) -> Floats:
            sums = np.bincount(all_names.owner, getattr(all_names.record, name), total)
            of_owner: Floats = getattr(own, name).copy()
            of_owner[mine] = sums[self.owner[mine]]
            return of_owner

        return replace(own, **{name: pooled(name) for name in _POOLED})

    @cached_property
    def is_proven(self) -> npt.NDArray[np.bool_]:
        """Who was asked for work before, under this name."""
        return self.record.work >= UNKNOWN_BELOW

    @cached_property
    def owner_is_known(self) -> npt.NDArray[np.bool_]:
        """Whose owner was asked for work before, under any name."""
        return self.owner_record.work >= UNKNOWN_BELOW

    @cached_property
    def asked(self) -> Floats:
        """The number of the selection that chose each candidate last, and its place there; -1: none did."""
        return np.nan_to_num(self.number("asked"), nan=-1.0)

    @cached_property
    def owner_asked(self) -> Floats:
        """The same of each candidate's owner, under any name."""
        if not self.shares_owner.any():
            return self.asked
        asked = np.nan_to_num(self.numbers.number("asked"), nan=-1.0)
        latest = np.full(len(self.numbers.names_of_owner), -1.0)
        np.maximum.at(latest, self.numbers.owner, asked)
        return latest[self.owner]


class _Nothing:
    """Nodes of whom nothing is known, each of its own owner."""

    selections = 0

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def number(self, name: str) -> Floats:
        unset = ("session_start_s", "asked", "speed_gflops", "heartbeat_s", "busy_until_s", "taken")
        return np.full(self._count, np.nan if name in unset else 0.0)

    @property
    def owner(self) -> npt.NDArray[np.int32]:
        return np.arange(self._count, dtype=np.int32)

    @property
    def names_of_owner(self) -> npt.NDArray[np.int32]:
        return np.ones(max(1, self._count), np.int32)
