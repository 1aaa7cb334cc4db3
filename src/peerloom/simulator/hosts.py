"""What a simulated machine is, and how it behaves."""

import enum
import math
from dataclasses import dataclass

# Mean speed of a slot that is called typical, in 1e9 operations a second: other speeds are multiples of it.
TYPICAL_GFLOPS = 100.0
MODEL_BYTES = 50_000_000
# Sessions of volunteer hosts are heavy-tailed; the literature on SETI@home reports Weibull distributions of a
# shape of about 0.4: B. Javadi, D. Kondo, J.-M. Vincent, D. P. Anderson, Discovering Statistical Models of
# Availability in Large Distributed Systems, IEEE TPDS 22(11), 2011. Taken from there, not measured by us.
VOLUNTEER_SHAPE = 0.4


class Behaviour(enum.Enum):
    """How a host differs from one that is steady."""

    STEADY = "steady"
    FLAPPING = "flapping"
    DIURNAL = "diurnal"
    DEGRADING = "degrading"
    OVERSTATING = "overstating"
    REFUSING = "refusing"
    LEAVING = "leaving"
    RENAMING = "renaming"
    SYBIL = "sybil"
    TRACED = "traced"
    TURNCOAT = "turncoat"
    SLOWING = "slowing"


ATTACKERS = frozenset(
    {Behaviour.OVERSTATING, Behaviour.REFUSING, Behaviour.LEAVING, Behaviour.RENAMING, Behaviour.SYBIL}
)


@dataclass(frozen=True, slots=True)
class SimulatedHost:
    """One machine. Times in seconds, speeds in 1e9 operations a second of one slot, chances 0 to 1.

    `said_gflops` is what it says of its speed. Sessions have the mean `up_s` and a Weibull distribution of
    `shape` (1: exponential, `inf`: all equal), pauses the mean `down_s`, exponential. `notice`: chance that a
    session ends with a goodbye; `leaves`: chance that it leaves in the middle of a job that it took;
    `renames`: it comes back under a new name after each session. Hosts of one `owner` have one address.
    A host with `turns_after` leaves jobs only once it was asked so often, within `leaves_within_s`. From
    `slows_at_s` on it has the part `slows_to` of its speed. With `outage_every_s` all hosts of the owner go
    at once, without notice, so often on average. A diurnal one comes at `morning_s` of each day (NaN: by
    chance).
    """

    behaviour: Behaviour
    owner: int
    slots: int = 1
    gflops: float = TYPICAL_GFLOPS
    said_gflops: float = TYPICAL_GFLOPS
    accepts: float = 0.98
    up_s: float = 86_400.0
    down_s: float = 3600.0
    shape: float = VOLUNTEER_SHAPE
    notice: float = 0.3
    leaves: float = 0.0
    renames: bool = False
    turns_after: int = 0
    leaves_within_s: float = math.inf
    slows_at_s: float = math.inf
    slows_to: float = 1.0
    outage_every_s: float = 0.0
    morning_s: float = math.nan
    bytes_per_s: float = 12_500_000.0

    @property
    def transfer_s(self) -> float:
        """How long it takes to get the model."""
        return MODEL_BYTES / self.bytes_per_s
