"""How a part of a model's chain of layers computes, alone or going on with a sequence."""

from typing import Any

import torch
from torch import Tensor

from peerloom.worker.batches import logits_of
from peerloom.worker.plan.chain import Layer


def run_layer(layer: Layer, inputs: Tensor, caches: dict[str, Any] | None) -> Tensor:
    """The layer's output; with `caches` (by layer name, changed in place) the inputs continue a sequence."""
    if caches is None:
        outputs: Tensor = layer.module(inputs)
        return outputs
    stepped: tuple[Tensor, Any] = layer.module.step(inputs, caches.get(layer.name))  # type: ignore[operator]  # IncrementalModel's layers have it
    caches[layer.name] = stepped[1]
    return stepped[0]


def run_layers(layers: list[Layer], inputs: Tensor, caches: dict[str, Any] | None = None) -> Tensor:
    """The output of the chain; without `caches` each call stands alone."""
    with torch.inference_mode():
        for layer in layers:
            inputs = run_layer(
                layer, inputs, {} if caches is None and hasattr(layer.module, "step") else caches
            )
        return logits_of(inputs)
