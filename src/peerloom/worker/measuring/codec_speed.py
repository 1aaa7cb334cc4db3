"""How fast this node encodes and decodes gradients."""

import time
from collections.abc import Callable, Sequence

import torch

from peerloom.kit.sync_method import DIRECT, NONE, SyncMethod
from peerloom.v1.trainer_pb2 import MeasuredCodec
from peerloom.worker.sync.codecs import codec_of

VALUES = 1 << 16
REPEATS = 3


def codec_speeds(
    methods: Sequence[SyncMethod], device: torch.device, now_s: Callable[[], float] = time.perf_counter
) -> list[MeasuredCodec]:
    """The codecs of these methods, each once; some milliseconds a codec."""
    codecs = {one.codec: one for one in methods if one.codec != NONE}
    return [
        _speed(SyncMethod(topology=DIRECT, codec=one.codec, ratio=one.ratio), device, now_s)
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
