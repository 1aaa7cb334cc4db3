"""Wall clocks that are minutes off, machine by machine, in a part of the histories; time's pace is right."""

import random
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from peerloom.kit.clock import from_timestamp
from peerloom.testing.service_wiring import clock_of
from peerloom.v1.trainer_pb2 import Job, WatchJobResponse

if TYPE_CHECKING:
    from tests.simulation.simulate import Simulation

SKEW_CHANCE = 0.5
MOST_AHEAD_S = 300.0
_LATE_S = 0.05  # until what was decided is stored


def draw_ahead_s(seed: int, hosts: Iterable[str]) -> dict[str, float]:
    """How far each machine's wall clock is ahead of the right time, or behind; empty: all are right."""
    chance = random.Random(f"{seed}/wall clocks")
    if chance.random() >= SKEW_CHANCE:
        return {}
    return {host: chance.uniform(-MOST_AHEAD_S, MOST_AHEAD_S) for host in hosts}


def right_s(simulation: "Simulation", service: str, wall_s: float) -> float:
    """When in the history it was that a service's clock read `wall_s`: its database's, wherever that is."""
    process = simulation.world.processes[service]
    clock = clock_of(simulation.world, process.disk.database_host or process.host)
    return wall_s - (clock.wall_s() - clock.monotonic_s())


def wrong_times(simulation: "Simulation") -> Iterator[str]:
    """Times that can't be: before or after the history, or of a session that was not as long as is said."""
    yield from _sessions(simulation)
    for service, what, wall_s in _stored(simulation):
        at_s = right_s(simulation, service, wall_s)
        if not -_LATE_S <= at_s <= simulation.world.loop.time() + _LATE_S:
            yield f"{what} was at {at_s:.3f} s, which is not in the history"


def _rows(simulation: "Simulation", service: str, query: str) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = (
        simulation.world.processes[service].disk.databases[service].execute(query).fetchall()
    )
    return rows


def _sessions(simulation: "Simulation") -> Iterator[str]:
    heard_s, now_s = simulation.world.observed.registered_s, simulation.world.loop.time()
    query = "select session_id, node_id, start_s, end_s, online_s from sessions"
    open_s: dict[str, float] = {}
    for lease, node_id, start_s, end_s, online_s in _rows(simulation, "registry", query):
        began_s = right_s(simulation, "registry", start_s)
        if not -_LATE_S <= began_s <= heard_s.get(lease, now_s) + _LATE_S:
            yield f"a session began at {began_s:.3f} s, and its node knew it at {heard_s.get(lease)} s"
        if end_s is not None and (online_s < 0 or abs(end_s - start_s - online_s) > _LATE_S):
            yield f"a session of {end_s - start_s:.3f} s is said to have lasted {online_s:.3f} s"
        if end_s is None:
            open_s[node_id] = began_s
    for node in (node for node in simulation.nodes if node.node_id in open_s):
        shortest_s = simulation.looked_s - open_s[node.node_id]
        if not shortest_s - _LATE_S <= node.online_s <= now_s - open_s[node.node_id] + _LATE_S:
            yield f"a session of {shortest_s:.3f} s is said to last for {node.online_s:.3f} s"


def _stored(simulation: "Simulation") -> Iterator[tuple[str, str, float]]:
    for number, wall_s in _rows(simulation, "registry", "select sequence, time_s from events"):
        yield "registry", f"the registry's event {number}", wall_s
    for node_id, wall_s in _rows(simulation, "selector", "select node_id, update_time_s from history"):
        yield "selector", f"an update of {node_id}'s belief", wall_s
    for (record,) in _rows(simulation, "trainer", "select record from jobs"):
        job = Job.FromString(record)
        for name in ("submit_time", "first_step_time", "end_time"):
            if job.HasField(name):
                yield "trainer", f"{job.job_id}'s {name}", from_timestamp(getattr(job, name))
    for (data,) in _rows(simulation, "trainer", "select event from job_events"):
        event = WatchJobResponse.FromString(data)
        yield "trainer", f"event {event.sequence} of {event.job_id}", from_timestamp(event.time)
