"""How busy the machine was between two readings: pure functions, with hand-countable numbers in and out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from peerloom.v1.registry_pb2 import GpuLoad, MachineLoad

_MIB = 1024**2


@dataclass(frozen=True)
class LoadReading:
    """What counters said at one moment, in seconds and bytes.

    Of `cores` cores, which could have worked for `total_s` since some beginning, `busy_s` were worked, by
    each process of ours, by its pid, what `own_s` says.
    """

    cores: float
    busy_s: float
    total_s: float
    own_s: Mapping[int, float]
    memory_used_bytes: int
    memory_total_bytes: int


def load_between(before: LoadReading, after: LoadReading, gpus: Sequence[GpuLoad] = ()) -> MachineLoad:
    """The load of the stretch between two readings; memory and `gpus` are as at its end."""
    passed_s = max(after.total_s - before.total_s, 1e-6)
    # A process that ended in between takes its share of this stretch with it.
    own_s = sum(max(0.0, used_s - before.own_s.get(pid, 0.0)) for pid, used_s in after.own_s.items())
    cpu_use = _share((after.busy_s - before.busy_s) / passed_s)
    return MachineLoad(
        cpu_use=cpu_use,
        own_cpu_use=min(_share(own_s / passed_s), cpu_use),
        cores=after.cores,
        memory_used_bytes=after.memory_used_bytes,
        memory_total_bytes=after.memory_total_bytes,
        gpus=gpus,
    )


def parse_gpu_loads(text: str, uuids: Sequence[str]) -> list[GpuLoad]:
    """nvidia-smi's lines "uuid, percent, MiB used, MiB" of the GPUs with these uuids, in their order.

    A percentage that the driver doesn't tell ("[N/A]") stays unset; GPUs without their line are left out.
    """
    found = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 4 and parts[2].isdigit() and parts[3].isdigit():
            use = _share(int(parts[1]) / 100) if parts[1].isdigit() else None
            used_bytes, total_bytes = int(parts[2]) * _MIB, int(parts[3]) * _MIB
            found[parts[0]] = GpuLoad(use=use, memory_used_bytes=used_bytes, memory_total_bytes=total_bytes)
    return [found[uuid] for uuid in uuids if uuid in found]


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))
