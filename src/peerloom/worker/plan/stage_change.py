"""What a step changes a stage by, as bytes: its gradients, and its buffers as they are after the step."""

from collections.abc import Collection

import torch
from torch import Tensor

from peerloom.worker.plan.stage_model import StageModel
from peerloom.worker.plan.tensor_places import (
    TensorPlace,
    aligned,
    check_dense,
    gradients_in,
    put_gradients,
)

_NO_SPARSE = "a stage's shadow takes dense ones. Train with shadow=off in the plan"


class ChangeLayout:
    """How the changes of a stage's `model` lie in bytes, alike on all workers that have such a stage.

    First a byte for each parameter that is trained, whether it has a gradient, then these, then buffers;
    without what is called as one of `left_out`.
    """

    def __init__(self, model: StageModel, left_out: Collection[str] = ()) -> None:
        self._model = model
        self._parameters = [
            (name, p) for name, p in model.named_parameters() if p.requires_grad and name not in left_out
        ]
        parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        buffers = {name: t for name, t in model.state_dict().items() if name not in parameters}
        self.buffers = tuple(sorted(buffers))
        self.size_bytes = aligned(len(self._parameters))
        self._gradients = [self._placed(name, parameter) for name, parameter in self._parameters]
        self._kept = [self._placed(name, buffers[name]) for name in self.buffers]

    def packed(self) -> Tensor:
        """What the step that was computed changes, uint8 [size_bytes], on the processor.

        Raises InvalidArgumentError for a sparse gradient.
        """
        content = torch.zeros(self.size_bytes, dtype=torch.uint8)
        for name, parameter in self._parameters:
            check_dense(name, parameter.grad, _NO_SPARSE, "SPARSE_IN_SHADOW")
        put_gradients(content, self._gradients, [parameter.grad for _, parameter in self._parameters])
        state = self._model.state_dict()
        for place in self._kept:
            place.of(content).copy_(state[place.name])
        return content

    def unpack(self, content: Tensor) -> None:
        """Puts a change into the model: gradients, which use the same memory where they can, and buffers."""
        gradients = gradients_in(content, self._gradients)
        for (_, parameter), gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.to(parameter.device)
        state = self._model.state_dict()
        for place in self._kept:
            state[place.name].copy_(place.of(content))

    def _placed(self, name: str, tensor: Tensor) -> TensorPlace:
        place = TensorPlace(name, tensor.shape, tensor.dtype, self.size_bytes)
        self.size_bytes = place.end
        return place
