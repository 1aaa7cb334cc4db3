"""How busy a machine was, from what was counted before and after, and what nvidia-smi said."""

from typing import Any

import pytest

from peerloom.services.node_agent.owner.load_meter import keep_told
from peerloom.services.node_agent.owner.machine_load import LoadReading, load_between, parse_gpu_loads
from peerloom.v1.registry_pb2 import GpuLoad, MachineLoad

MIB = 1024**2
BEFORE = LoadReading(4, 100.0, 1000.0, {7: 10.0, 8: 2.0}, 3 * 10**9, 8 * 10**9)


def test_a_load_is_what_was_added_between_two_readings() -> None:
    """Of 20 core-seconds 9 were busy: 3 by 7, 1 by 9, which is new; 8 has ended and is no longer counted."""
    after = LoadReading(4, 109.0, 1020.0, {7: 13.0, 9: 1.0}, 5 * 10**9, 8 * 10**9)
    gpu = GpuLoad(use=0.5, memory_used_bytes=1, memory_total_bytes=2)
    assert load_between(BEFORE, after, [gpu]) == MachineLoad(
        cpu_use=0.45,
        own_cpu_use=0.2,
        cores=4,
        memory_used_bytes=5 * 10**9,
        memory_total_bytes=8 * 10**9,
        gpus=[gpu],
    )


@pytest.mark.parametrize(
    ("busy_s", "total_s", "own_s", "cpu_use", "own_use"),
    [
        (100.0, 1020.0, {7: 10.0}, 0.0, 0.0),
        (125.0, 1020.0, {7: 40.0}, 1.0, 1.0),  # the counters aren't read at one moment
        (110.0, 1020.0, {7: 25.0}, 0.5, 0.5),  # of us is never more than of all
        (90.0, 1000.0, {7: 5.0}, 0.0, 0.0),  # no time has passed, and a counter went back
    ],
)
def test_parts_are_from_0_to_1_whatever_was_read(
    busy_s: float, total_s: float, own_s: dict[int, float], cpu_use: float, own_use: float
) -> None:
    load = load_between(BEFORE, LoadReading(4, busy_s, total_s, own_s, 0, 1))
    assert (load.cpu_use, load.own_cpu_use) == (cpu_use, own_use)


def test_gpus_come_in_the_order_of_those_that_are_seen_and_strangers_are_left_out() -> None:
    text = "GPU-a, 90, 1000, 8000\nGPU-b, [N/A], 0, 8000\nGPU-c, 5, [N/A], 8000\nbroken line\n"
    assert parse_gpu_loads(text, ["GPU-b", "GPU-a", "GPU-c", "GPU-d"]) == [
        GpuLoad(memory_used_bytes=0, memory_total_bytes=8000 * MIB),
        GpuLoad(use=0.9, memory_used_bytes=1000 * MIB, memory_total_bytes=8000 * MIB),
    ]
    assert parse_gpu_loads("", ["GPU-a"]) == []


async def test_what_is_known_is_told_soon_and_then_now_and_then() -> None:
    looks: list[MachineLoad | None] = [None, MachineLoad(cores=1), None, MachineLoad(cores=2)]
    told: list[float] = []
    slept: list[float] = []

    class Meter:
        async def look(self) -> MachineLoad | None:
            return looks.pop(0)

    class EndError(Exception):
        pass

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if not looks:
            raise EndError

    def tell(load: Any) -> None:
        told.append(load.cores)

    with pytest.raises(EndError):
        await keep_told(Meter(), tell, sleep)
    assert told == [1, 2]
    assert slept == [1.0, 5.0, 5.0, 5.0]
