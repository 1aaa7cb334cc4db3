"""How busy a test says that a machine is, as its agent would tell it."""

from peerloom.client.types import GpuLoad, MachineLoad
from peerloom.kit.checks import check_range
from peerloom.v1 import registry_pb2


def check_shares(load: MachineLoad) -> None:
    """Raises InvalidArgumentError unless all parts are from 0 to 1: the registry hears no others."""
    check_range("cpu_use", load.cpu_use, 0, 1)
    check_range("own_cpu_use", load.own_cpu_use, 0, 1)
    for number, gpu in enumerate(load.gpus):
        check_range(f"gpus[{number}].use", gpu.use or 0, 0, 1)


def load_message(load: MachineLoad) -> registry_pb2.MachineLoad:
    """A load as a message."""
    return registry_pb2.MachineLoad(
        cpu_use=load.cpu_use,
        own_cpu_use=load.own_cpu_use,
        cores=load.cores,
        memory_used_bytes=load.memory_used_bytes,
        memory_total_bytes=load.memory_total_bytes,
        gpus=map(_gpu_message, load.gpus),
    )


def _gpu_message(gpu: GpuLoad) -> registry_pb2.GpuLoad:
    return registry_pb2.GpuLoad(
        use=gpu.use, memory_used_bytes=gpu.memory_used_bytes, memory_total_bytes=gpu.memory_total_bytes
    )
