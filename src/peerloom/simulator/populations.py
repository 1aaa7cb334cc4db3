"""Populations by name: how many hosts, how strong, how they behave."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from peerloom.errors import InvalidArgumentError, NotFoundError
from peerloom.simulator.hosts import TYPICAL_GFLOPS, Behaviour, SimulatedHost
from peerloom.simulator.trace import TracedSession

# Strengths by power law: P(speed > x) = (x / least)^-TAIL up to a limit, most hosts weak.
_TAIL, _LEAST, _MOST = 1.5, 0.5, 16.0
_SLOTS, _SLOT_CHANCES = (1, 2, 4, 8), (0.72, 0.18, 0.07, 0.03)
_FLAKY, _DIURNAL = 0.30, 0.10
_TURNED, _TURNS_AFTER, _SLOWED = 0.20, 30, 0.30
_OWNERS_HOSTS, _PHASES_H = 20, (0.0, 8.0, 16.0)
_LAB_SPEEDS = (0.5, 2.0)  # of typical ones: machines of some ten years
_HOSTILE = {
    Behaviour.DEGRADING: 0.03,
    Behaviour.OVERSTATING: 0.03,
    Behaviour.REFUSING: 0.03,
    Behaviour.LEAVING: 0.03,
    Behaviour.RENAMING: 0.03,
}
SYBILS = 100


@dataclass(frozen=True)
class Population:
    """Hosts, and for traced ones their sessions in the same order; the host `asker` isn't asked itself."""

    name: str
    hosts: tuple[SimulatedHost, ...]
    trace: tuple[tuple[TracedSession, ...], ...] = ()
    asker: int | None = None


def population(name: str, seed: int) -> Population:
    """The population of this name. Raises NotFoundError with the nearest names."""
    if name not in POPULATIONS:
        raise NotFoundError.of_name("population", name[:80], POPULATIONS)
    hosts = tuple(POPULATIONS[name](np.random.default_rng([seed, 1])))
    # In the thesis's network one of the nodes is the one that wants compute.
    return Population(name, hosts, asker=0 if name.startswith("thesis") else None)


def traced(name: str, sessions: Mapping[str, list[TracedSession]], seed: int) -> Population:
    """One host for each in the trace, with strengths by power law."""
    rng = np.random.default_rng([seed, 1])
    plain = [_volunteer(rng, owner) for owner in range(len(sessions))]
    hosts = []
    for host, mine in zip(plain, sessions.values(), strict=True):
        ended = [one.end_s - one.start_s for one in mine if math.isfinite(one.end_s)]
        mean_s = sum(ended) / len(ended) if ended else host.up_s
        hosts.append(replace(host, behaviour=Behaviour.TRACED, up_s=mean_s))
    return Population(name, tuple(hosts), tuple(tuple(mine) for mine in sessions.values()))


def check_not_empty(hosts: tuple[SimulatedHost, ...]) -> None:
    """Raises InvalidArgumentError for a population of nobody."""
    if not hosts:
        raise InvalidArgumentError("a population needs at least one node; this one has 0.")


def _volunteer(rng: np.random.Generator, owner: int) -> SimulatedHost:
    speed = TYPICAL_GFLOPS * min(_MOST, _LEAST * (1 - rng.random()) ** (-1 / _TAIL))
    return SimulatedHost(
        Behaviour.STEADY,
        owner,
        slots=int(rng.choice(_SLOTS, p=_SLOT_CHANCES)),
        gflops=speed,
        said_gflops=speed,
        up_s=float(rng.uniform(12, 72)) * 3600,
        bytes_per_s=12_500_000 * float(rng.lognormal(0.0, 0.7)),
    )


def _behaving(host: SimulatedHost, behaviour: Behaviour) -> SimulatedHost:
    changed = replace(host, behaviour=behaviour)
    match behaviour:
        case Behaviour.FLAPPING:
            return replace(changed, up_s=3600.0, down_s=1800.0, notice=0.1)
        case Behaviour.DIURNAL:
            return replace(changed, up_s=10 * 3600.0, notice=0.7)
        case Behaviour.OVERSTATING:
            weak = min(host.gflops, 0.3 * TYPICAL_GFLOPS)
            return replace(changed, gflops=weak, said_gflops=20 * TYPICAL_GFLOPS)
        case Behaviour.REFUSING:
            return replace(changed, accepts=0.1)
        case Behaviour.LEAVING:
            return replace(changed, leaves=0.8, notice=0.0)
        case Behaviour.RENAMING:
            return replace(changed, leaves=0.8, notice=0.0, renames=True)
        case Behaviour.TURNCOAT:
            strong = max(host.gflops, 8 * TYPICAL_GFLOPS)
            bad = replace(changed, gflops=strong, said_gflops=strong, leaves=0.8, notice=0.0)
            return replace(bad, slots=4, turns_after=_TURNS_AFTER, leaves_within_s=30.0)
        case Behaviour.SYBIL:
            return replace(changed, accepts=0.5, leaves=0.5, slots=8, said_gflops=20 * TYPICAL_GFLOPS)
        case _:
            return changed


def _volunteers(count: int) -> Callable[[np.random.Generator], list[SimulatedHost]]:
    """30 % flapping, 10 % diurnal, the others steady."""

    def build(rng: np.random.Generator) -> list[SimulatedHost]:
        hosts = [_volunteer(rng, owner) for owner in range(count)]
        flaky, daily = round(_FLAKY * count), round(_DIURNAL * count)
        order = rng.permutation(count).tolist()
        for place in order[:flaky]:
            hosts[place] = _behaving(hosts[place], Behaviour.FLAPPING)
        for place in order[flaky : flaky + daily]:
            hosts[place] = _behaving(hosts[place], Behaviour.DIURNAL)
        return hosts

    return build


def _equals(count: int) -> Callable[[np.random.Generator], list[SimulatedHost]]:
    """Volunteers of four slots and the same speed each: only their sessions tell them apart."""

    def build(rng: np.random.Generator) -> list[SimulatedHost]:
        same = {"slots": 4, "gflops": TYPICAL_GFLOPS, "said_gflops": TYPICAL_GFLOPS}
        return [replace(host, **same) for host in _volunteers(count)(rng)]  # type: ignore[arg-type]  # by name

    return build


def _turncoats(count: int) -> Callable[[np.random.Generator], list[SimulatedHost]]:
    """Volunteers, of whom 20 % are strong and leave what they took once they were asked 30 times."""

    def build(rng: np.random.Generator) -> list[SimulatedHost]:
        hosts = _volunteers(count)(rng)
        for place in rng.permutation(count)[: round(_TURNED * count)].tolist():
            hosts[place] = _behaving(_volunteer(rng, place), Behaviour.TURNCOAT)
        return hosts

    return build


def _outages(count: int) -> Callable[[np.random.Generator], list[SimulatedHost]]:
    """Volunteers, 20 of each owner; every fourth owner loses all of them every 3 hours, others each week."""

    def build(rng: np.random.Generator) -> list[SimulatedHost]:
        hosts = []
        for place, host in enumerate(_volunteers(count)(rng)):
            owner = place // _OWNERS_HOSTS
            every_s = 3 * 3600.0 if owner % 4 == 0 else 7 * 86_400.0
            hosts.append(replace(host, owner=owner, outage_every_s=every_s))
        return hosts

    return build


def _labs(count: int) -> Callable[[np.random.Generator], list[SimulatedHost]]:
    """Volunteers, 20 of each owner, alike in strength; an owner loses all of them every 12 hours."""

    def build(rng: np.random.Generator) -> list[SimulatedHost]:
        hosts = []
        for place, host in enumerate(_volunteers(count)(rng)):
            if place % _OWNERS_HOSTS == 0:
                slots = int(rng.choice(_SLOTS))
                speed = TYPICAL_GFLOPS * float(rng.uniform(*_LAB_SPEEDS))
            alike = replace(host, slots=slots, gflops=speed, said_gflops=speed)
            hosts.append(replace(alike, owner=place // _OWNERS_HOSTS, outage_every_s=12 * 3600.0))
        return hosts

    return build


def _phases(count: int) -> Callable[[np.random.Generator], list[SimulatedHost]]:
    """Everybody works by the clock, in three time zones eight hours apart."""

    def build(rng: np.random.Generator) -> list[SimulatedHost]:
        hosts = []
        for place in range(count):
            morning_h = float(rng.choice(_PHASES_H)) + float(rng.uniform(0, 2))
            daily = _behaving(_volunteer(rng, place), Behaviour.DIURNAL)
            hosts.append(replace(daily, morning_s=morning_h * 3600))
        return hosts

    return build


def _slowing(count: int) -> Callable[[np.random.Generator], list[SimulatedHost]]:
    """Volunteers, of whom 30 % fall to a tenth of their speed between the second and the sixth day."""

    def build(rng: np.random.Generator) -> list[SimulatedHost]:
        hosts = _volunteers(count)(rng)
        for place in rng.permutation(count)[: round(_SLOWED * count)].tolist():
            at_s = float(rng.uniform(2, 6)) * 86_400
            slowed = replace(hosts[place], slows_at_s=at_s, slows_to=0.1)
            hosts[place] = replace(slowed, behaviour=Behaviour.SLOWING, up_s=48 * 3600.0)
        return hosts

    return build


def _hostile(count: int) -> Callable[[np.random.Generator], list[SimulatedHost]]:
    """Volunteers, 3 % each of every bad behaviour, and 100 names of one owner on top."""

    def build(rng: np.random.Generator) -> list[SimulatedHost]:
        hosts = _volunteers(count)(rng)
        order = iter(rng.permutation(count).tolist())
        for behaviour, share in _HOSTILE.items():
            for _ in range(round(share * count)):
                place = next(order)
                hosts[place] = _behaving(_volunteer(rng, place), behaviour)
        hosts += [_behaving(_volunteer(rng, count), Behaviour.SYBIL) for _ in range(SYBILS)]
        return hosts

    return build


def _thesis(gpus: tuple[int, ...]) -> Callable[[np.random.Generator], list[SimulatedHost]]:
    """Nodes 5, 6, 7, 11 and 17 have GPUs, the others relay only and refuse; all are turned off and on."""

    def build(rng: np.random.Generator) -> list[SimulatedHost]:
        lent = dict(zip((5, 6, 7, 11, 17), gpus, strict=True))
        plain = SimulatedHost(
            Behaviour.STEADY, 0, slots=0, accepts=1.0, up_s=1200.0, down_s=60.0, shape=1.0, notice=0.9
        )
        return [replace(plain, owner=index, slots=lent.get(index, 0)) for index in range(20)]

    return build


POPULATIONS: dict[str, Callable[[np.random.Generator], list[SimulatedHost]]] = {
    "thesis20": _thesis((3, 2, 2, 1, 1)),
    "thesis20-text": _thesis((3, 2, 1, 1, 1)),
    "equals-300": _equals(300),
    "turncoats-300": _turncoats(300),
    "outages-300": _outages(300),
    "labs-300": _labs(300),
    "phases-300": _phases(300),
    "slowing-300": _slowing(300),
    "loaded-100": _volunteers(100),
    "volunteers-1000": _volunteers(1_000),
    "volunteers-10000": _volunteers(10_000),
    "volunteers-100000": _volunteers(100_000),
    "hostile-1000": _hostile(1_000),
    "hostile-10000": _hostile(10_000),
}
