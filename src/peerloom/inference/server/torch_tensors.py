"""Messages as torch tensors and back."""

import torch

from peerloom.errors import InvalidArgumentError
from peerloom.kit.tensors import array_of, message_of
from peerloom.v1 import inference_pb2
from peerloom.worker.description import ModelOrigin


def tensor_of(message: inference_pb2.Tensor, field: str = "inputs") -> torch.Tensor:
    """The numbers of a message. Raises InvalidArgumentError naming `field` when they don't agree."""
    return torch.from_numpy(array_of(message, field))


def message_of_tensor(tensor: torch.Tensor, field: str = "outputs") -> inference_pb2.Tensor:
    """A tensor as a message; bfloat16, which numpy doesn't know, goes as float32."""
    plain = tensor.float() if tensor.dtype is torch.bfloat16 else tensor
    return message_of(plain.contiguous().numpy(), field)


def check_inputs(inputs: torch.Tensor, origin: ModelOrigin) -> None:
    """Raises InvalidArgumentError, saying what is expected, for a batch that the model doesn't take."""
    expected = f"{origin.input_dtype}[n, {', '.join(map(str, origin.input_shape))}]"
    found_type = str(inputs.dtype).removeprefix("torch.")
    if tuple(inputs.shape[1:]) != origin.input_shape or not inputs.dim() or found_type != origin.input_dtype:
        raise InvalidArgumentError.of_field("inputs", f"{found_type}{list(inputs.shape)}", expected)
    if not 1 <= len(inputs) <= 65536:
        raise InvalidArgumentError.of_field("inputs", f"{len(inputs):,} samples", "1 to 65,536 samples")
    if inputs.is_floating_point() and not bool(torch.isfinite(inputs).all()):
        raise InvalidArgumentError(
            "inputs hold NaN or infinity: a model's answer to that means nothing.",
            reason="NOT_FINITE",
            metadata={"field": "inputs"},
        )
