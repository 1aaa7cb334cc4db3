"""Machine speeds from a job's workers beside each other: by hand, what liars gain, and through the writer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_selector import MemorySelector, entry, event, fact, node_id

from peerloom.kit.limits import MAX_SPEED_GFLOPS
from peerloom.services.selector.belief.machine_speed import WorkerSpeed, machine_speeds
from peerloom.v1.registry_pb2 import NODE_EVENT_KIND_REGISTERED


def test_a_newcomer_is_measured_by_those_who_are_known() -> None:
    """Machines of 100 and 50 reach 1 and 0.5 on a small model: 0.25 there is a machine of 25."""
    workers = [WorkerSpeed(1.0, 7.0, 100.0), WorkerSpeed(0.5, 0.0, 50.0), WorkerSpeed(0.25, 900.0, 0.0)]
    assert machine_speeds(workers) == pytest.approx([100.0, 50.0, 25.0])


def test_two_who_were_believed_equal_and_are_not_meet_in_the_geometric_middle() -> None:
    """Ratios of 100 and 25: the scale is 50."""
    assert machine_speeds([WorkerSpeed(1.0, 0.0, 100.0), WorkerSpeed(4.0, 0.0, 100.0)]) == pytest.approx(
        [50.0, 200.0]
    )


def test_of_newcomers_who_overstates_gains_nothing() -> None:
    """Two honest ones say 100 and reach 1, the third says 5,000 and reaches 1, too."""
    workers = [WorkerSpeed(1.0, 100.0, 0.0), WorkerSpeed(1.0, 5000.0, 0.0), WorkerSpeed(1.0, 100.0, 0.0)]
    assert machine_speeds(workers) == [100.0, 100.0, 100.0]
    assert machine_speeds(workers[:2]) == [100.0, 100.0]


def test_alone_or_among_strangers_without_a_word_nothing_is_told() -> None:
    assert machine_speeds([WorkerSpeed(3.0, 100.0, 100.0)]) == [0.0]
    assert machine_speeds([WorkerSpeed(3.0, 100.0, 100.0), WorkerSpeed(0.0, 100.0, 100.0)]) == [0.0, 0.0]
    assert machine_speeds([WorkerSpeed(3.0, 0.0, 0.0), WorkerSpeed(1.0, 0.0, 0.0)]) == [0.0, 0.0]
    assert machine_speeds([]) == []


SPEEDS = st.floats(0.01, 1e4)
COMPANY = st.lists(st.builds(WorkerSpeed, SPEEDS, st.just(0.0) | SPEEDS, st.just(0.0) | SPEEDS), max_size=8)


@given(COMPANY, st.floats(1e-3, 1e3))
def test_the_model_of_a_job_changes_nothing(workers: list[WorkerSpeed], size: float) -> None:
    """All speeds of a job times the same: the machines are what they were."""
    other = [one._replace(speed_gflops=size * one.speed_gflops) for one in workers]
    assert machine_speeds(other) == pytest.approx(machine_speeds(workers), rel=1e-9)


@given(COMPANY)
def test_no_speed_leaves_its_bounds(workers: list[WorkerSpeed]) -> None:
    assert all(0 <= speed <= MAX_SPEED_GFLOPS for speed in machine_speeds(workers))


async def test_the_service_compares_within_jobs_and_not_between_them() -> None:
    """Nodes 1 and 2, equal machines of 100, train a large model; 3 and 4, alike, a small one."""
    selector = MemorySelector()
    met = [event(n, NODE_EVENT_KIND_REGISTERED, entry(n, speed_gflops=100.0)) for n in range(1, 5)]
    await selector.writer.follow(met)
    await selector.writer.report(
        [
            fact("a", 1, speed_gflops=60.0, job_id="large", slots=2),
            fact("b", 2, speed_gflops=60.0, job_id="large"),
            fact("c", 3, speed_gflops=0.9, job_id="small"),
            fact("d", 4, speed_gflops=0.9, job_id="small"),
            fact("e", 4, speed_gflops=5.0, job_id="alone"),
        ]
    )
    columns = selector.columns
    speeds = columns.number("speed_total") / columns.number("speeds")
    assert columns.node_ids == [node_id(n) for n in range(1, 5)]
    assert speeds.tolist() == pytest.approx([100.0, 100.0, 100.0, 100.0])
    assert columns.number("slots_given").tolist() == [2, 0, 0, 0]
