"""The survey's machines, by the numbers that it prints, and its two architectures over them.

8 machines with 4 GPUs behind PCI Express each, 100 Gbit/s InfiniBand between them. Start-up a: from messages
of 16 and 32 KiB. InfiniBand's rate: from 1 MB with that start-up. PCI Express: from the all-reduce of
BERT-Large over 4 GPUs. Operations a second: from BERT-Large's iteration. A ring over all GPUs is as slow as
PCI Express.
"""

from dataclasses import replace

from peerloom.experiments.survey_models import SurveyModel, bert_large
from peerloom.kit.codec_sizes import VALUE_BYTES
from peerloom.kit.sync_model.access_links import SyncNetwork
from peerloom.kit.sync_model.message_rounds import MessageRound

GPUS_A_MACHINE = 4
STARTUP_S = 7.85e-6 - (10.1e-6 - 7.85e-6)
INFINIBAND_BITS_PER_S = 8 * 2**20 / (8 * 2**20 / 83.2e9 - STARTUP_S)
LARGE_ALL_REDUCE_S, LARGE_ITERATION_S, LARGE_OPERATIONS = 0.441, 0.163, 597e9
_LARGE_BYTES = 336_226_108 * VALUE_BYTES
PCIE_BITS_PER_S = 1.5 * 8 * _LARGE_BYTES / (LARGE_ALL_REDUCE_S - 6 * STARTUP_S)
NVLINK_TIMES_PCIE = 10


def iteration_s(model: SurveyModel) -> float:
    """A GPU's iteration: the model's operations at the rate of BERT-Large's, whose own is printed."""
    if model == bert_large():
        return LARGE_ITERATION_S
    return model.operations() * LARGE_ITERATION_S / LARGE_OPERATIONS


def ring_of(workers: int, bits_per_s: float = PCIE_BITS_PER_S) -> SyncNetwork:
    """The GPUs of an all-reduce; NCCL's messages don't wait for their receivers."""
    return replace(SyncNetwork.uniform(workers, bits_per_s, STARTUP_S), library_waits=False)


class MachineServers:
    """BytePS: a machine's GPUs sum among themselves, the machine pushes to servers and pulls, its GPUs share.

    There is a server for each machine, so each link between machines carries a gradient a direction. On PCI
    Express a GPU exchanges 3/4 of a gradient with its neighbours, and gives 1/4 to the machine's memory; then
    back.
    """

    links: tuple[str, ...] = ("PCIe up", "PCIe down", "network up", "network down")

    def __init__(self, pcie_bits_per_s: float, network_bits_per_s: float) -> None:
        self._pcie, self._network = pcie_bits_per_s, network_bits_per_s

    def rounds(self, values: int) -> tuple[MessageRound, ...]:
        size = values * VALUE_BYTES
        part_s, whole_s = 6 * size / self._pcie, 8 * size / self._pcie
        between_s = 8 * size / self._network
        among_s = GPUS_A_MACHINE * STARTUP_S
        return (
            MessageRound("sum in machine", ((0, whole_s), (1, part_s)), among_s, (size,)),
            MessageRound("push", ((2, between_s),), STARTUP_S, (size,)),
            MessageRound("pull", ((3, between_s),), STARTUP_S, (size,)),
            MessageRound("share in machine", ((0, part_s), (1, whole_s)), among_s, (size,)),
        )
