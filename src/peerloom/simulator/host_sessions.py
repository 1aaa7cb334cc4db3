"""When hosts come and go: each host's next session from its behaviour, or from a trace."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from peerloom.simulator.chance import uniform, uniforms, weibull_scale, weibulls
from peerloom.simulator.hosts import Behaviour, SimulatedHost
from peerloom.simulator.trace import TracedSession

_DAY_S = 86_400.0
DEGRADES_BY_HALF_S = 5 * _DAY_S
_SURE_END, _SURE_STAY = 30.0, 1e-3  # risks over the horizon, as e^-risk is the chance to stay
_LENGTH, _PAUSE, _NOTICE, _FIRST, _OUTAGE = range(5)
OUTAGE_S = 1800.0
_BLOCK = 32

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]


class Sessions:
    """Answers for host `index` and its session `number` from 0; the same for every policy.

    `drawn` keeps each host's newest block of chance.
    """

    def __init__(
        self, hosts: Sequence[SimulatedHost], seed: int, trace: Sequence[Sequence[TracedSession]] = ()
    ) -> None:
        self._hosts = hosts
        self._seed = seed
        self._trace = trace
        self.drawn: list[_Drawn | None] = [None] * len(hosts)
        self._outages: dict[int, list[float]] = {}
        self._is_cut = [False] * len(hosts)

    def start_s(self, index: int, number: int, now_s: float) -> float:
        """When the session begins, the one before having ended at `now_s`; inf: never again."""
        host, start_s = self._hosts[index], self._own_start_s(index, number, now_s)
        if not host.outage_every_s or not math.isfinite(start_s):
            return start_s
        since_s = start_s - self._outage_s(host, start_s - OUTAGE_S)
        return start_s + OUTAGE_S - since_s if since_s >= 0 else start_s

    def _own_start_s(self, index: int, number: int, now_s: float) -> float:
        host = self._hosts[index]
        if host.behaviour is Behaviour.TRACED:
            mine = self._trace[index]
            return max(now_s, mine[number].start_s) if number < len(mine) else math.inf
        pause = self._draw(index, number).pauses[number % _BLOCK]
        if host.behaviour is Behaviour.DIURNAL:
            return self._next_morning_s(index, pause, now_s)
        available = host.up_s / (host.up_s + host.down_s)
        if number == 0 and uniform(self._seed, index, 0, _FIRST) < available:
            return now_s
        return now_s + host.down_s * pause

    def length_s(self, index: int, number: int, now_s: float) -> float:
        """How long the session lasts that begins at `now_s`."""
        host = self._hosts[index]
        if host.behaviour is Behaviour.TRACED:
            return max(1e-3, self._trace[index][number].end_s - now_s)
        length_s = host.up_s * self._draw(index, number).lengths[number % _BLOCK]
        if host.behaviour is Behaviour.DEGRADING:
            length_s *= 2.0 ** (-now_s / DEGRADES_BY_HALF_S)
        if host.outage_every_s:
            left_s = self._outage_s(host, now_s) - now_s
            self._is_cut[index] = left_s < length_s
            length_s = min(length_s, left_s)
        return max(1.0, length_s)

    def notice(self, index: int, number: int) -> bool:
        """Whether the session, whose length was asked last, ends with a goodbye."""
        if self._is_cut[index]:
            return False
        if self._hosts[index].behaviour is Behaviour.TRACED:
            return self._trace[index][number].notice
        return self._draw(index, number).notices[number % _BLOCK]

    def _outage_s(self, host: SimulatedHost, after_s: float) -> float:
        """When the owner's next outage begins, later than that."""
        known = self._outages.setdefault(host.owner, [])
        while not known or known[-1] <= after_s:
            pause_s = -host.outage_every_s * math.log(uniform(self._seed, host.owner, len(known), _OUTAGE))
            known.append((known[-1] + OUTAGE_S if known else 0.0) + pause_s)
        return known[bisect_right(known, after_s)]

    def _draw(self, index: int, number: int) -> "_Drawn":
        drawn = self.drawn[index]
        if drawn is None or drawn.block != number // _BLOCK:
            drawn = _Drawn.of(self._hosts[index], self._seed, index, number // _BLOCK)
            self.drawn[index] = drawn
        return drawn

    def hazards(self, indices: Rows, since_s: Floats, now_s: float, horizon_s: float) -> Floats:
        """True mean rates of ending over the horizon, in 1/s, of sessions open since then; for the oracle.

        Who comes by the clock or by a trace is as good as safe until its mean length is over.
        """
        h, age_s = self._hazard_columns, now_s - since_s
        mean_s = h.up_s[indices] * np.where(h.degrades[indices], np.exp2(-since_s / DEGRADES_BY_HALF_S), 1.0)
        shape, scale = h.shape[indices], h.unit_scale[indices] * mean_s
        drawn = ((age_s + horizon_s) / scale) ** shape - (age_s / scale) ** shape
        timed = np.where(np.maximum(1.0, mean_s - age_s) < horizon_s, _SURE_END, _SURE_STAY)
        risk = np.where(h.is_timed[indices], timed, drawn) + h.leaving[indices]
        risk += h.outages_a_s[indices] * horizon_s
        rates: Floats = np.maximum(risk, 1e-9) / horizon_s
        return rates

    @cached_property
    def _hazard_columns(self) -> "_HazardColumns":
        return _HazardColumns.of(self._hosts)

    def _next_morning_s(self, index: int, jitter: float, now_s: float) -> float:
        told_s = self._hosts[index].morning_s
        morning_s = uniform(self._seed, index, 0, _FIRST) * _DAY_S if math.isnan(told_s) else told_s
        days = math.floor((now_s - morning_s) / _DAY_S) + 1
        return max(now_s, morning_s + days * _DAY_S + (jitter - 0.5) * 3600)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The chance in a block of a host's sessions: lengths and pauses as multiples of their means.

    Drawn together, since a simulated month has millions of sessions. Of a diurnal host the pauses are the
    mornings' jitter, 0 to 1.
    """

    block: int
    lengths: list[float]
    pauses: list[float]
    notices: list[bool]

    @classmethod
    def of(cls, host: SimulatedHost, seed: int, index: int, block: int) -> "_Drawn":
        numbers = range(block * _BLOCK, (block + 1) * _BLOCK)
        length, pause, notice = (uniforms(seed, index, numbers, one) for one in (_LENGTH, _PAUSE, _NOTICE))
        daily = host.behaviour is Behaviour.DIURNAL
        lengths = 0.75 + 0.5 * length if daily else weibulls(length, host.shape)
        pauses = pause if daily else weibulls(pause, 1.0)
        return cls(block, lengths.tolist(), pauses.tolist(), (notice < host.notice).tolist())


@dataclass(frozen=True)
class _HazardColumns:
    """What hazards follow from, one entry a host; `leaving` is the risk of deserting a job."""

    up_s: Floats
    shape: Floats
    unit_scale: Floats
    is_timed: npt.NDArray[np.bool_]
    degrades: npt.NDArray[np.bool_]
    leaving: Floats
    outages_a_s: Floats

    @classmethod
    def of(cls, hosts: Sequence[SimulatedHost]) -> "_HazardColumns":
        timed = [
            host.behaviour in (Behaviour.DIURNAL, Behaviour.TRACED) or math.isinf(host.shape)
            for host in hosts
        ]
        shapes = [1.0 if by_clock else host.shape for host, by_clock in zip(hosts, timed, strict=True)]
        return cls(
            up_s=np.array([host.up_s for host in hosts]),
            shape=np.array(shapes),
            unit_scale=np.array([weibull_scale(1.0, shape) for shape in shapes]),
            is_timed=np.array(timed),
            degrades=np.array([host.behaviour is Behaviour.DEGRADING for host in hosts]),
            leaving=np.array(
                [0.0 if host.turns_after else -math.log1p(-min(host.leaves, 0.999)) for host in hosts]
            ),
            outages_a_s=np.array([1 / host.outage_every_s if host.outage_every_s else 0.0 for host in hosts]),
        )
