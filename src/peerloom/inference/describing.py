"""What a model consists of, each layer measured on this machine, with one layer in memory at a time."""

import time

import torch
from torch import Tensor

from peerloom.errors import PeerloomError
from peerloom.inference.building import Blueprint, Part, build, run_part, sample_inputs
from peerloom.v1.inference_pb2 import ModelDescription, ModelLayer

_REPEATS = 3


def describe(blueprint: Blueprint, device: torch.device) -> ModelDescription:
    """The model's layers with their bytes and seconds for one sample.

    A layer that fails on zeros, and those after it, stay unmeasured (0): the model may need real inputs.
    """
    origin = blueprint.origin
    answer = ModelDescription(
        digest=blueprint.digest,
        task=origin.task,
        input_shape=origin.input_shape,
        input_dtype=origin.input_dtype,
        incremental=blueprint.incremental,
        context=blueprint.context,
    )
    # A token at a time is what a sequence's layers will be asked for.
    inputs: Tensor | None = sample_inputs(origin, 1)
    if blueprint.incremental and inputs is not None:
        inputs = inputs[:, :1]
    for index, layer in enumerate(blueprint.layers):
        described = answer.layers.add(name=layer.name, parameter_bytes=layer.parameter_bytes)
        if inputs is not None:
            inputs = _measure(build(blueprint, index, index + 1, device), inputs, described)
    return answer


def _measure(part: Part, inputs: Tensor, described: ModelLayer) -> Tensor | None:
    try:
        times_s = []
        for _ in range(_REPEATS):
            started_s = time.perf_counter()
            outputs = run_part(part, inputs)
            times_s.append(time.perf_counter() - started_s)
    except PeerloomError:
        return None
    described.seconds_per_sample = sorted(times_s)[_REPEATS // 2]
    described.output_bytes_per_sample = outputs.numel() * outputs.element_size()
    return outputs
