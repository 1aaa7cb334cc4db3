"""The layers of the thesis's two networks as shapes: what they weigh, and what a device does for a sample."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

# A multiplication and an addition for each weight and position, in one product of matrices forward and in two
# backward: for the inputs' gradient and for the weights'.
_OPERATIONS_A_WEIGHT = 2 * 3


@dataclass(frozen=True)
class LayerShape:
    """A layer of `inputs` times `outputs` weights and `outputs` biases, used at `positions` of a sample.

    A linear layer has one position; a convolution's inputs are its kernel's, and its positions the pixels of
    its output.
    """

    inputs: int
    outputs: int
    positions: int = 1

    @property
    def parameters(self) -> int:
        """Weights and biases."""
        return (self.inputs + 1) * self.outputs

    @property
    def operations(self) -> int:
        """Of a sample, both passes; biases, pooling and activations are left out."""
        return _OPERATIONS_A_WEIGHT * self.inputs * self.outputs * self.positions


# As the tasks `mnist` and `cifar10` build them; a test compares each parameter.
SHAPES: Mapping[str, tuple[LayerShape, ...]] = MappingProxyType(
    {
        "mnist": (
            LayerShape(1 * 5 * 5, 16, 24 * 24),
            LayerShape(16 * 5 * 5, 32, 8 * 8),
            LayerShape(512, 72),
            LayerShape(72, 10),
        ),
        "cifar10": (
            LayerShape(3 * 5 * 5, 6, 28 * 28),
            LayerShape(6 * 5 * 5, 16, 10 * 10),
            LayerShape(400, 120),
            LayerShape(120, 84),
            LayerShape(84, 10),
        ),
    }
)
