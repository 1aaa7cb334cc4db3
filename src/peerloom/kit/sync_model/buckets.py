"""Which gradients travel together: layers merged into buckets, or cut into pieces."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from peerloom.kit.codec_sizes import VALUE_BYTES
from peerloom.kit.sync_model.layer_times import LayerTimes
from peerloom.kit.sync_model.scheme import SyncScheme


@dataclass(frozen=True)
class GradientBucket:
    """Gradients that travel together: so many values, complete once `first_layer`'s backward pass is over.

    They are those of the layers `first_layer` to `last_layer`, which the backward pass comes to first.
    """

    first_layer: int
    last_layer: int
    values: int
    is_small: bool = False  # of layers that have no codec for their size


def buckets_of(scheme: SyncScheme, layers: Sequence[LayerTimes]) -> tuple[GradientBucket, ...]:
    """The buckets of a step in the order in which they are complete; no parameters, no bucket."""
    merged = _merged(layers, scheme.first_merge_bytes or scheme.merge_bytes, scheme.merge_bytes)
    if not scheme.cut_bytes:
        return tuple(merged)
    most_values = max(1, scheme.cut_bytes // VALUE_BYTES)
    return tuple(piece for bucket in merged for piece in _pieces(bucket, most_values))


def divided_by_size(
    scheme: SyncScheme, layers: Sequence[LayerTimes], buckets: Sequence[GradientBucket]
) -> tuple[GradientBucket, ...]:
    """The same values, those of small layers by themselves."""
    return tuple(part for bucket in buckets for part in _divided(scheme, layers, bucket))


def _divided(
    scheme: SyncScheme, layers: Sequence[LayerTimes], bucket: GradientBucket
) -> Iterator[GradientBucket]:
    sizes = [layer.parameters for layer in layers[bucket.first_layer : bucket.last_layer + 1]]
    small = min(bucket.values, sum(size for size in sizes if scheme.is_small(size)))
    if small:
        yield replace(bucket, values=small, is_small=True)
    if bucket.values > small:
        yield replace(bucket, values=bucket.values - small)


def _pieces(bucket: GradientBucket, most_values: int) -> Iterator[GradientBucket]:
    for start in range(0, bucket.values, most_values):
        yield replace(bucket, values=min(most_values, bucket.values - start))


def _merged(layers: Sequence[LayerTimes], limit: int, next_limit: int) -> Iterator[GradientBucket]:
    last, first, values = -1, -1, 0
    for number in reversed(range(len(layers))):
        if not layers[number].parameters:
            continue
        last, first = (number if not values else last), number
        values += layers[number].parameters
        if values * VALUE_BYTES >= limit:
            yield GradientBucket(first, last, values)
            limit, values = next_limit, 0
    if values:
        yield GradientBucket(first, last, values)
