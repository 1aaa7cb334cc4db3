"""What a node is likely to do for a job: hazard, acceptance, pace. Pure arithmetic over columns.

    lasts      = transfer + horizon * typical speed / pace
    hazard     = (ln(1 + ((age + lasts) / a)^b) - ln(1 + (age / a)^b)) / lasts
    acceptance = (1 - turned) * (g + good) / (g + r + good + bad) + turned * after
    turned     = 1 / (1 + e^(doubted - suspicion))
    speed      = (k * doubt + measured) / (k + measurements)
    transfer   = typical_bytes / bandwidth
    delay      = what it says of its heartbeats, or what is typical of others if that is more
    slots      = proven + g / (g + r) * min(said - proven, proven), less those at work for earlier selections
    pace       = speed * horizon / (horizon + transfer) * step / (step + delay)

The horizon is what the job takes on typical nodes, `lasts` what it really takes on this one. The hazard is
that of a log-logistic distribution of sessions, given that this one has lasted `age` already: it falls with
age where sessions are heavy-tailed, and rises where a machine comes and goes by the clock. Its median a and
its shape b = pi / (sqrt(3) * deviation) are those of the logarithms of the node's sessions, of `ends` typical
ones before any, and of the open one once it has outlasted the others. (S. Bennett, Log-logistic regression
models for survival data, Applied Statistics 32, 1983.) Acceptance is the mean of a Beta(g, r) prior, unless
the node has turned bad, for which `suspicion` speaks (track.py). `doubt` is what is typical of others, or
less if the node says so itself; `measured` are machine speeds (machine_speed.py), only the newest where those
differ from all by a quarter. `proven` is the most slots that a node gave at once, 1 before any: what it says
beyond them counts up to as many again, by the prior of acceptance. Bandwidth has one typical transfer as its
prior. Beta is the conjugate prior of Bernoulli facts: A. Gelman et al., Bayesian Data Analysis, chapter 2.
All counts fade (track.py). A node is believed to be no better than all names of its owner.
"""

import math
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt

from peerloom.errors import ConfigurationError
from peerloom.services.selector.policies.interface import Candidates
from peerloom.services.selector.policies.past import FadedSums

Floats = npt.NDArray[np.float64]
_ASKED_FOR_MEDIAN = 4096
_ENOUGH_ENDS, _LEAST_VARIANCE, _LARGE = 0.1, 0.01, 50.0
_LONGEST = 16.0  # a job on a node slower than that would be given up long before its end
_STEADY = 0.25  # the part by which newer speeds may be off before they are taken for a change
_SHAPE = math.pi / math.sqrt(3)
VALUE_FORMULA = (
    "value = slowest pace * sum(slots * acceptance * (1 - e^(-hazard*lasts)) / (hazard*lasts)) "
    "* (1 - product(1 - acceptance * e^(-hazard*lasts))) "
    "/ (1 + sum(acceptance * (1 - e^(-hazard*lasts)) * (loss/lasts + share)))"
)


@dataclass(frozen=True)
class Priors:
    """What is believed before any evidence; counts are in facts, times in seconds.

    Raising `ends` makes what others do count for longer, raising `exposure_s` (the length of a typical
    session where none has ended yet) or lowering `spread` (the deviation of its logarithm) trusts the unseen
    more; raising `horizon_s` prefers those who stay to those who are fast; raising `loss_s` (what a worker's
    end is taken to cost the whole gang) or `loss_share` (what it costs besides, in lengths of the job)
    prefers smaller, steadier sets to fast ones. Raising `doubted` takes more failures in a row until a node
    counts as turned bad, and `after` is the part of requests that such a one meets; lowering `step_s` (a
    typical training step, whose exchange waits for a round trip) shuns slow answers more.
    """

    ends: float = 0.5
    exposure_s: float = 4 * 3600.0
    spread: float = 1.0
    good: float = 9.5
    refused: float = 0.5
    doubted: float = 4.0
    after: float = 0.1
    speed_facts: float = 0.25
    horizon_s: float = 1800.0
    loss_s: float = 30.0
    loss_share: float = 8.0
    step_s: float = 0.1

    def check(self) -> None:
        """Raises ConfigurationError for what is no number, or would make the score unbounded."""
        for one in fields(self):
            value = getattr(self, one.name)
            may_be_zero = one.name in ("after", "loss_s", "loss_share")
            if not (0 < value <= 1e9 or (may_be_zero and value == 0)):
                low = "0" if may_be_zero else "more than 0"
                raise ConfigurationError(
                    f"survival's {one.name} is {value!r}, but must be a number from {low} to 1e9: in "
                    "the hazard of sessions, acceptance = (good + ...) / (good + refused + ...) and "
                    f"{VALUE_FORMULA} it would leave a score without bound."
                )


@dataclass(frozen=True)
class Outlook:
    """One entry a candidate: hazard in 1/s, acceptance 0 to 1, speed and pace in 1e9 operations a second, and
    for how long the job lasts there in seconds.
    """

    hazard: Floats
    acceptance: Floats
    speed: Floats
    transfer_s: Floats
    delay_s: Floats
    pace: Floats
    slots: Floats
    lasts_s: Floats
    loss_s: float
    loss_share: float = 0.0

    @cached_property
    def ends(self) -> Floats:
        """Chance that a node's session ends before the job does, if it accepts."""
        chance: Floats = -np.expm1(-self.hazard * self.lasts_s)
        return chance

    @cached_property
    def gain(self) -> Floats:
        """Expected slots while the job lasts: what a node adds to a gang."""
        added: Floats = self.slots * self.acceptance * self.ends / (self.hazard * self.lasts_s)
        return added

    @cached_property
    def losses(self) -> Floats:
        """Part of the job's time that the whole gang is expected to lose by this node."""
        part: Floats = self.acceptance * self.ends * (self.loss_s / self.lasts_s + self.loss_share)
        return part

    @cached_property
    def fails(self) -> Floats:
        """Chance that a node doesn't see the job's end: it refuses, or its session ends."""
        chance: Floats = 1 - self.acceptance * (1 - self.ends)
        return chance

    @cached_property
    def score(self) -> Floats:
        """The value of each node as a set of its own: expected useful work a second."""
        value: Floats = self.pace * self.gain * (1 - self.fails) / (1 + self.losses)
        return value


def outlook(candidates: Candidates, priors: Priors, horizon_s: float) -> Outlook:
    """What to expect of each candidate in a job of `horizon_s` seconds on typical nodes."""
    past = candidates.known
    own, owner = past.record, past.owner_record
    typical, speed = _speed(own, past.number("speed_gflops"), priors)
    transfer_s, delay_s = _transfer_s(own), _delay_s(past.number("heartbeat_s"))
    pace = speed * horizon_s / (horizon_s + transfer_s) * priors.step_s / (priors.step_s + delay_s)
    lasts_s = transfer_s + horizon_s * np.minimum(typical / np.maximum(pace, 1e-9), _LONGEST)
    hazard, acceptance = _hazard(own, past.open_s, lasts_s, priors), _acceptance(own, priors)
    if owner is not own:
        shared = np.flatnonzero(past.shares_owner)
        theirs = owner.of(shared)
        of_owner = _hazard(theirs, past.open_s[shared], lasts_s[shared], priors)
        hazard[shared] = np.maximum(hazard[shared], of_owner)
        acceptance[shared] = np.minimum(acceptance[shared], _acceptance(theirs, priors))
    turned = turned_chance(own, priors)
    free = np.maximum(0.0, candidates.slots - past.taken_slots)
    return Outlook(
        hazard=hazard,
        acceptance=(1 - turned) * acceptance + turned * priors.after,
        speed=speed,
        transfer_s=transfer_s,
        delay_s=delay_s,
        pace=pace,
        slots=np.minimum(expected_slots(candidates.slots.astype(np.float64), own, priors), free),
        lasts_s=lasts_s,
        loss_s=priors.loss_s,
        loss_share=priors.loss_share,
    )


def turned_chance(record: FadedSums, priors: Priors) -> Floats:
    """The chance that a node has turned bad, by its newest requests."""
    chance: Floats = 1 / (1 + np.exp(priors.doubted - record.suspicion))
    return chance


def expected_slots(said: Floats, record: FadedSums, priors: Priors) -> Floats:
    proven = np.minimum(said, np.maximum(1.0, record.slots_given))
    expected = priors.good / (priors.good + priors.refused)
    counted: Floats = proven + expected * np.minimum(said - proven, proven)
    return counted


def _hazard(record: FadedSums, age_s: Floats, lasts_s: Floats, priors: Priors) -> Floats:
    ended = record.interruptions + record.departures
    typical = _typical_log(record, ended, priors)
    count = priors.ends + ended
    mean = (priors.ends * typical + record.session_logs) / count
    squares = (priors.ends * (priors.spread**2 + typical**2) + record.session_log_squares) / count
    age = np.log1p(age_s)
    # An open session that has outlasted the others is one of at least that length.
    open_ = np.where(age > mean, 1.0, 0.0)
    mean = (count * mean + open_ * age) / (count + open_)
    squares = (count * squares + open_ * age * age) / (count + open_)
    shape = _SHAPE / np.sqrt(np.maximum(squares - mean * mean, _LEAST_VARIANCE))
    before = np.log1p(np.exp(np.minimum(shape * (age - mean), _LARGE)))
    after = np.log1p(np.exp(np.minimum(shape * (np.log1p(age_s + lasts_s) - mean), _LARGE)))
    per_s: Floats = np.maximum(after - before, 1e-9) / lasts_s
    return per_s


def _typical_log(record: FadedSums, ended: Floats, priors: Priors) -> float:
    known = np.flatnonzero(ended > _ENOUGH_ENDS)
    known = known[:: 1 + len(known) // _ASKED_FOR_MEDIAN]
    if len(known) == 0:
        return math.log1p(priors.exposure_s)
    return float((record.session_logs[known] / ended[known]).mean())


def _acceptance(record: FadedSums, priors: Priors) -> Floats:
    chance: Floats = (priors.good + record.trainings) / (priors.good + priors.refused + record.work)
    return chance


def _speed(record: FadedSums, said: Floats, priors: Priors) -> tuple[float, Floats]:
    """What is typical of the measured, and what to expect of each."""
    measured = record.speeds > 1e-6
    known = record.speed_total[measured] / record.speeds[measured] if measured.any() else said[said > 0]
    # Thousands tell the median as well as all of them do.
    typical = float(np.median(known[:: 1 + len(known) // _ASKED_FOR_MEDIAN])) if len(known) else 1.0
    # Its own word can lower what we expect of a node, and never raise it above what others have shown.
    doubt = np.fmin(said, typical)
    doubt = np.where(np.isnan(said), typical, doubt)
    speed: Floats = (priors.speed_facts * doubt + record.speed_total) / (priors.speed_facts + record.speeds)
    newest, all_ = record.recent_speed_total * record.speeds, record.recent_speeds * record.speed_total
    changed = np.flatnonzero(np.abs(newest - all_) > _STEADY * all_)
    counts, totals = record.recent_speeds[changed], record.recent_speed_total[changed]
    speed[changed] = (priors.speed_facts * doubt[changed] + totals) / (priors.speed_facts + counts)
    return typical, speed


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
