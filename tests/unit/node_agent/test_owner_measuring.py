"""When the machine is measured again, and what is believed of the child that measures."""

import pytest

from peerloom.services.node_agent.owner.measuring import next_measuring_s, parse_speeds


@pytest.mark.parametrize(
    ("interval_s", "is_new", "chance", "wait_s"),
    [
        (3600.0, True, 1.0, 60.0),
        (3600.0, True, 0.0, 30.0),
        (3600.0, False, 1.0, 3600.0),
        (3600.0, False, 0.0, 1800.0),
        (10.0, True, 1.0, 10.0),
    ],
)
def test_the_first_measurement_comes_soon_and_neighbours_take_turns(
    interval_s: float, is_new: bool, chance: float, wait_s: float
) -> None:
    assert next_measuring_s(interval_s, is_new=is_new, chance=chance) == wait_s


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "no json",
        '{"matmul_gflops": 1, "memory_bytes_per_s": 1}',
        '{"matmul_gflops": 1, "memory_bytes_per_s": 1, "training_gflops": 0}',
        '{"matmul_gflops": 1, "memory_bytes_per_s": 1, "training_gflops": NaN}',
        '{"matmul_gflops": 1, "memory_bytes_per_s": 1, "training_gflops": Infinity}',
    ],
)
def test_a_measurement_that_makes_no_sense_is_none(line: str) -> None:
    assert parse_speeds(line) is None


def test_a_measurement_is_read_by_its_names() -> None:
    line = '{"training_gflops": 3.5, "matmul_gflops": 8, "memory_bytes_per_s": 1e9, "more": 1}'
    assert parse_speeds(line) == {"matmul_gflops": 8.0, "memory_bytes_per_s": 1e9, "training_gflops": 3.5}
