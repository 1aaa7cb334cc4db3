"""What a node is likely to do for a job: hazard, acceptance, pace. Pure arithmetic over columns.

    hazard     = (a + ended) / (b + exposure)
    acceptance = (g + good) / (g + r + good + bad)
    speed      = (k * doubt + measured) / (k + measurements)
    transfer   = typical_bytes / bandwidth
    delay      = what it says of its heartbeats, or what is typical of others if that is more
    slots      = proven + g / (g + r) * min(said - proven, proven)
    pace       = speed * horizon / (horizon + transfer) * step / (step + delay)

The hazard is the mean of a Gamma(a, b) prior after `ended` sessions ended over `exposure` seconds online,
where a goodbye counts as part of an end; acceptance the mean of a Beta(g, r) prior. `doubt` is what is
typical of others, or less if the node says so itself; `measured` are machine speeds (machine_speed.py).
`proven` is the most slots that a node gave at once, 1 before any: what it says beyond them counts up to as
many again, by the prior of acceptance. Bandwidth has one typical transfer as its prior. Gamma
and Beta are the conjugate priors of Poisson and Bernoulli facts: A. Gelman et al., Bayesian Data Analysis,
chapter 2. All counts fade (track.py). A node is believed to be no better than all names of its owner.
"""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt

from peerloom.errors import ConfigurationError
from peerloom.services.selector.policies.interface import Candidates
from peerloom.services.selector.policies.past import FadedSums

Floats = npt.NDArray[np.float64]
_ASKED_FOR_MEDIAN = 4096
VALUE_FORMULA = (
    "value = slowest pace * sum(slots * acceptance * (1 - e^(-hazard*horizon)) / (hazard*horizon)) "
    "/ (1 + loss/horizon * sum(acceptance * (1 - e^(-hazard*horizon))))"
)


@dataclass(frozen=True)
class Priors:
    """What is believed before any evidence; counts are in facts, times in seconds.

    Raising `ends` or lowering `exposure_s` distrusts the unseen more; raising `horizon_s` prefers those who
    stay to those who are fast; raising `loss_s` (what a worker's end costs the whole gang) prefers smaller,
    steadier sets. `notice` is how much of an interruption a goodbye is; lowering `step_s` (a typical training
    step, whose exchange waits for a round trip) shuns slow answers more.
    """

    ends: float = 1.0
    exposure_s: float = 4 * 3600.0
    notice: float = 0.5
    good: float = 2.0
    refused: float = 1.0
    speed_facts: float = 0.25
    horizon_s: float = 1800.0
    loss_s: float = 60.0
    step_s: float = 0.1

    def check(self) -> None:
        """Raises ConfigurationError for what is no number, or would make the score unbounded."""
        for one in fields(self):
            value = getattr(self, one.name)
            may_be_zero = one.name in ("notice", "loss_s")
            if not (0 < value <= 1e9 or (may_be_zero and value == 0)):
                low = "0" if may_be_zero else "more than 0"
                raise ConfigurationError(
                    f"survival's {one.name} is {value!r}, but must be a number from {low} to 1e9: in "
                    "hazard = (ends + ended) / (exposure_s + exposure), acceptance = (good + ...) / "
                    f"(good + refused + ...) and {VALUE_FORMULA} it would leave a score without bound."
                )


@dataclass(frozen=True)
class Outlook:
    """One entry a candidate: hazard in 1/s, acceptance 0 to 1, speed and pace in 1e9 operations a second."""

    hazard: Floats
    acceptance: Floats
    speed: Floats
    transfer_s: Floats
    delay_s: Floats
    pace: Floats
    slots: Floats
    horizon_s: float
    loss_s: float

    @cached_property
    def ends(self) -> Floats:
        """Chance that a node's session ends within the horizon, if it accepts."""
        chance: Floats = -np.expm1(-self.hazard * self.horizon_s)
        return chance

    @cached_property
    def gain(self) -> Floats:
        """Expected slots over the horizon: what a node adds to a gang."""
        lived = self.ends / (self.hazard * self.horizon_s)
        added: Floats = self.slots * self.acceptance * lived
        return added

    @cached_property
    def losses(self) -> Floats:
        """Part of the horizon that the whole gang is expected to lose by this node."""
        part: Floats = self.acceptance * self.ends * self.loss_s / self.horizon_s
        return part

    @property
    def score(self) -> Floats:
        """The value of each node as a set of its own: expected useful work a second."""
        value: Floats = self.pace * self.gain / (1 + self.losses)
        return value


def outlook(candidates: Candidates, priors: Priors, horizon_s: float) -> Outlook:
    """What to expect of each candidate over the next `horizon_s` seconds."""
    past = candidates.known
    own, owner = past.record, past.owner_record
    hazard, acceptance = _hazard(own, priors), _acceptance(own, priors)
    if owner is not own:
        hazard = np.maximum(hazard, _hazard(owner, priors))
        acceptance = np.minimum(acceptance, _acceptance(owner, priors))
    speed, transfer_s = _speed(own, past.number("speed_gflops"), priors), _transfer_s(own)
    delay_s = _delay_s(past.number("heartbeat_s"))
    return Outlook(
        hazard=hazard,
        acceptance=acceptance,
        speed=speed,
        transfer_s=transfer_s,
        delay_s=delay_s,
        pace=speed * horizon_s / (horizon_s + transfer_s) * priors.step_s / (priors.step_s + delay_s),
        slots=_slots(candidates.slots.astype(np.float64), own, priors),
        horizon_s=horizon_s,
        loss_s=priors.loss_s,
    )


def _slots(said: Floats, record: FadedSums, priors: Priors) -> Floats:
    proven = np.minimum(said, np.maximum(1.0, record.slots_given))
    expected = priors.good / (priors.good + priors.refused)
    counted: Floats = proven + expected * np.minimum(said - proven, proven)
    return counted


def _hazard(record: FadedSums, priors: Priors) -> Floats:
    ended = record.interruptions + priors.notice * record.departures
    per_s: Floats = (priors.ends + ended) / (priors.exposure_s + record.exposure_s)
    return per_s


def _acceptance(record: FadedSums, priors: Priors) -> Floats:
    chance: Floats = (priors.good + record.trainings) / (priors.good + priors.refused + record.work)
    return chance


def _speed(record: FadedSums, said: Floats, priors: Priors) -> Floats:
    measured = record.speeds > 1e-6
    known = record.speed_total[measured] / record.speeds[measured] if measured.any() else said[said > 0]
    # Thousands tell the median as well as all of them do.
    typical = float(np.median(known[:: 1 + len(known) // _ASKED_FOR_MEDIAN])) if len(known) else 1.0
    # Its own word can lower what we expect of a node, and never raise it above what others have shown.
    doubt = np.fmin(said, typical)
    doubt = np.where(np.isnan(said), typical, doubt)
    speed: Floats = (priors.speed_facts * doubt + record.speed_total) / (priors.speed_facts + record.speeds)
    return speed


def _transfer_s(record: FadedSums) -> Floats:
    transfers = float(record.transfers.sum())
    if transfers < 1e-6:
        return np.zeros(len(record.transfers))
    mean_bytes = max(1.0, float(record.transfer_bytes.sum()) / transfers)
    mean_s = float(record.transfer_s.sum()) / transfers
    a_byte_s: Floats = (record.transfer_s + mean_s) / (record.transfer_bytes + mean_bytes)
    return a_byte_s * mean_bytes


def _delay_s(said: Floats) -> Floats:
    told = said[said > 0]
    if len(told) == 0:
        return np.zeros(len(said))
    typical = float(np.median(told[:: 1 + len(told) // _ASKED_FOR_MEDIAN]))
    # Who says that it is faster than most gains nothing by it; who says nothing is taken for typical.
    return np.fmax(said, typical)
