"""Whether a batch is what a model takes: by its task's declaration, or by what its training saw."""

import numpy as np

from peerloom.errors import InvalidArgumentError
from peerloom.inference.server.computing import Array
from peerloom.kit.raw_values import MOST_SAMPLES, raw_values
from peerloom.worker.model_origin import ModelOrigin


def checked_inputs(array: Array, origin: ModelOrigin) -> Array:
    """The batch, still raw where the task declared what that is.

    Raises InvalidArgumentError, saying what is expected, for a batch that the model doesn't take.
    """
    if origin.raw_input is not None:
        return raw_values(array, origin.raw_input)
    expected = f"{origin.input_dtype}[n, {', '.join(map(str, origin.input_shape))}]"
    found_type = array.dtype.name
    if array.shape[1:] != origin.input_shape or not array.ndim or found_type != origin.input_dtype:
        raise InvalidArgumentError.of_field("inputs", f"{found_type}{list(array.shape)}", expected)
    if not 1 <= len(array) <= MOST_SAMPLES:
        limit = f"1 to {MOST_SAMPLES:,} samples"
        raise InvalidArgumentError.of_field("inputs", f"{len(array):,} samples", limit)
    if array.dtype.kind == "f" and not bool(np.isfinite(array).all()):
        raise InvalidArgumentError(
            "inputs hold NaN or infinity: a model's answer to that means nothing.",
            reason="NOT_FINITE",
            metadata={"field": "inputs"},
        )
    return array
