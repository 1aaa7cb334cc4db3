"""Messages as torch tensors and back."""

import torch

from peerloom.errors import InvalidArgumentError
from peerloom.kit.raw_values import MOST_SAMPLES, Array, raw_values
from peerloom.kit.tensors import array_of, message_of
from peerloom.v1 import inference_pb2
from peerloom.worker.model_origin import ModelOrigin


def tensor_of(message: inference_pb2.Tensor, field: str = "inputs") -> torch.Tensor:
    """The numbers of a message. Raises InvalidArgumentError naming `field` when they don't agree."""
    return torch.from_numpy(array_of(message, field))


def message_of_tensor(tensor: torch.Tensor, field: str = "outputs") -> inference_pb2.Tensor:
    """A tensor as a message; bfloat16, which numpy doesn't know, goes as float32."""
    plain = tensor.float() if tensor.dtype is torch.bfloat16 else tensor
    return message_of(plain.contiguous().numpy(), field)


def checked_inputs(array: Array, origin: ModelOrigin) -> torch.Tensor:
    """A batch as a tensor, still raw where the task declared what that is.

    Raises InvalidArgumentError, saying what is expected, for a batch that the model doesn't take.
    """
    if origin.raw_input is not None:
        return torch.from_numpy(raw_values(array, origin.raw_input))
    inputs = torch.from_numpy(array)
    expected = f"{origin.input_dtype}[n, {', '.join(map(str, origin.input_shape))}]"
    found_type = str(inputs.dtype).removeprefix("torch.")
    if tuple(inputs.shape[1:]) != origin.input_shape or not inputs.dim() or found_type != origin.input_dtype:
        raise InvalidArgumentError.of_field("inputs", f"{found_type}{list(inputs.shape)}", expected)
    if not 1 <= len(inputs) <= MOST_SAMPLES:
        limit = f"1 to {MOST_SAMPLES:,} samples"
        raise InvalidArgumentError.of_field("inputs", f"{len(inputs):,} samples", limit)
    if inputs.is_floating_point() and not bool(torch.isfinite(inputs).all()):
        raise InvalidArgumentError(
            "inputs hold NaN or infinity: a model's answer to that means nothing.",
            reason="NOT_FINITE",
            metadata={"field": "inputs"},
        )
    return inputs
