"""What a way to synchronise does, costs and guarantees, in words: pure functions."""

from dataclasses import dataclass

from peerloom.kit.codec_sizes import LEAST_SAVED_BYTES, VALUE_BYTES, encoded_bytes
from peerloom.kit.sync_method import CHOICES, DIRECT, TOP_K, SyncMethod

_VALUES = 2**20  # a message so long that how its end is filled up doesn't show


@dataclass(frozen=True)
class SyncExplanation:
    """`method` with all its pairs; `bytes_per_parameter` that a message has in a step with single-precision
    gradients, and `bytes_ratio`, the same as a part of what codec=none takes."""

    method: str
    schedule: str
    topology: str
    codec: str
    bytes_per_parameter: float
    bytes_ratio: float
    small_messages: str
    is_exact: bool
    sums: str
    ranks: str


def explained(method: SyncMethod) -> SyncExplanation:
    """What to know of a method."""
    codec = f"{TOP_K}:RATIO" if method.codec == TOP_K else method.codec
    each = encoded_bytes(method, _VALUES) / _VALUES
    return SyncExplanation(
        method=str(method),
        schedule=CHOICES["schedule"][method.schedule],
        topology=CHOICES["topology"][method.topology],
        codec=CHOICES["codec"][codec],
        bytes_per_parameter=each,
        bytes_ratio=each / VALUE_BYTES,
        small_messages=""
        if method.is_exact
        else f"a message that would be less than {LEAST_SAVED_BYTES} bytes shorter travels as it is",
        is_exact=method.is_exact,
        sums=_sums(method),
        ranks="the same bits on all ranks after each step"
        + (": the owner of a part encodes its sum once, and all decode the same bytes" * _is_decoded(method)),
    )


def _is_decoded(method: SyncMethod) -> bool:
    return method.topology == DIRECT and not method.is_exact


def _sums(method: SyncMethod) -> str:
    if method.is_exact:
        return "exact, but for the rounding of the last bits, which the order of adding decides"
    if method.has_feedback:
        return (
            "lossy; what a step leaves out is added to the next, so that only the last residuals of the "
            "ranks are missing in the sum of all steps"
        )
    if method.topology == DIRECT:
        return "lossy: rounded to 16 bits before and after adding; added in single precision"
    return "lossy: rounded to 16 bits, and added in 16 bits from rank to rank"
