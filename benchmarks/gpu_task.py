"""The GPU benchmark's model and data as a Peerloom task."""

from torch import Tensor, nn

from benchmarks.gpu_model import BATCH, LEARNING_RATE, make_model, make_pool
from benchmarks.wide_task import Wide


class Sequences(Wide):
    """`steps` steps of 512 sequences in one epoch, in half precision."""

    batch_size = BATCH
    learning_rate = LEARNING_RATE
    autocast = "bf16"

    def model(self) -> nn.Module:
        return make_model()

    def pool(self) -> tuple[Tensor, Tensor]:
        return make_pool()
