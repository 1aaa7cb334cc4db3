"""How fast this node encodes and decodes gradients."""

import time
from collections.abc import Callable, Sequence

import torch

from peerloom.kit.codec_choices import POWER_SGD
from peerloom.kit.sync_method import DIRECT, NONE, SyncMethod
from peerloom.v1.trainer_pb2 import MeasuredCodec
from peerloom.worker.sync.codecs import codec_of
from peerloom.worker.sync.low_rank_factors import (
    first_directions,
    first_factor,
    orthonormal,
    product,
    second_factor,
    unspanned,
)

VALUES = 1 << 16
SIDE = 1 << 10  # of a matrix: of a smaller one orthogonal columns take longer than all else
REPEATS = 3


def codec_speeds(
    methods: Sequence[SyncMethod], device: torch.device, now_s: Callable[[], float] = time.perf_counter
) -> list[MeasuredCodec]:
    """The codecs of these methods, each once; some milliseconds a codec."""
    codecs = {one.codec: one for one in methods if one.codec != NONE}
    return [
        _low_rank_speed(one.low_rank, device, now_s)
        if one.codec == POWER_SGD
        else _speed(SyncMethod(topology=DIRECT, codec=one.codec, ratio=one.ratio), device, now_s)
        for one in codecs.values()
    ]


def _speed(method: SyncMethod, device: torch.device, now_s: Callable[[], float]) -> MeasuredCodec:
    rows = torch.linspace(-1.0, 1.0, VALUES, device=device).sin().view(1, -1)
    codec = codec_of(method, VALUES, rows.dtype)
    encode_s, decode_s = [], []
    for _ in range(REPEATS):
        begun_s = now_s()
        encoded = codec.encode(rows).cpu()  # as the mesh wants it; on a GPU this waits
        encoded_s = now_s()
        codec.decode(encoded.to(device), VALUES).cpu()
        encode_s.append(encoded_s - begun_s)
        decode_s.append(now_s() - encoded_s)
    # Whatever interrupts only adds.
    return MeasuredCodec(codec=method.codec, encode_s=min(encode_s) / VALUES, decode_s=min(decode_s) / VALUES)


def _low_rank_speed(rank: int, device: torch.device, now_s: Callable[[], float]) -> MeasuredCodec:
    """Of powersgd, for each of its ranks."""
    matrix = torch.linspace(-1.0, 1.0, SIDE * SIDE, device=device).sin().view(SIDE, SIDE)
    directions = first_directions(SIDE, rank, 0, matrix)
    encode_s, decode_s = [], []
    for _ in range(REPEATS):
        begun_s = now_s()
        [basis] = orthonormal([first_factor(matrix, *orthonormal([directions]))])
        second = second_factor(matrix, basis)
        unspanned(matrix, basis, second)[0].cpu()  # on a GPU this waits
        encoded_s = now_s()
        product(basis, second)[0].cpu()
        encode_s.append(encoded_s - begun_s)
        decode_s.append(now_s() - encoded_s)
    values = matrix.numel() * rank
    return MeasuredCodec(codec=POWER_SGD, encode_s=min(encode_s) / values, decode_s=min(decode_s) / values)
