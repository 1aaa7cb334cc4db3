"""Small parameters exactly, large ones by a codec, without a network: which is which, and what comes out."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from test_error_feedback import LIMIT_S, Memory, MemoryExchange
from torch import Tensor

from peerloom.kit.codec_choices import POWER_SGD
from peerloom.kit.sync_grammar import parse_sync
from peerloom.kit.sync_method import DIRECT, RING
from peerloom.worker.sync.bucket_layout import Layout
from peerloom.worker.sync.low_rank import LowRankSumming
from peerloom.worker.sync.residuals import Residuals
from peerloom.worker.sync.summing import OwnerSumming, Summing
from peerloom.worker.sync.summing_by_size import SummingBySize

SIZES = ((50, 60), (7,), (30, 40), (16,))  # 12,000, 28, 4,800 and 64 bytes


class Model:
    """One rank's parameters of these sizes in one bucket, and what it keeps over its steps."""

    def __init__(self, sizes: Sequence[tuple[int, ...]]) -> None:
        self.parameters = [torch.nn.Parameter(torch.zeros(size)) for size in sizes]
        self.residuals = Residuals()

    def left_out(self) -> list[Tensor]:
        return [self.residuals.kept.get(one, torch.zeros_like(one.data)) for one in self.parameters]

    def sum_up(
        self, exchange: MemoryExchange, text: str, step: int, gradients: Sequence[Tensor]
    ) -> list[Tensor]:
        method = parse_sync("sync", text.replace(f"topology={RING},", ""))
        carried = method.without_codec() if method.codec == POWER_SGD else method
        summing: Summing = OwnerSumming(exchange, carried, self.residuals)
        if method.codec == POWER_SGD:
            summing = LowRankSumming(summing, method, self.residuals, self.parameters)
        else:
            summing = SummingBySize(summing, method)
        whole = [(one, one.size(), one.stride(), 0) for one in self.parameters]
        layout = Layout.packed(whole)
        bucket = layout.flat(dict(zip(self.parameters, gradients, strict=True)))
        self.residuals.begin(step)
        summing.begin_loss(torch.ones(()))
        summing.begin(bucket, layout)
        assert summing.finish() == exchange.ranks
        views = layout.by_parameter(bucket)
        return [views[one] for one in self.parameters]


def in_memory(
    models: Sequence[Model], text: str, step: int, gradients: Sequence[Sequence[Tensor]], commits: bool = True
) -> list[Tensor]:
    """The sums of all ranks' gradients, the same on all; over direct exchanges where no server is named."""
    if "topology" not in text:
        text = f"topology={DIRECT},{text}"
    memory = Memory(len(models))
    with ThreadPoolExecutor(len(models)) as pool:
        sums = [
            pool.submit(partial(model.sum_up, MemoryExchange(memory, rank), text, step, gradients[rank]))
            for rank, model in enumerate(models)
        ]
        came = [one.result(LIMIT_S) for one in sums]
    for one in came[1:]:
        assert all(
            torch.equal(a, b) or not bool(a.isfinite().all()) for a, b in zip(came[0], one, strict=True)
        )
    for model in models if commits else ():
        model.residuals.commit()
    return came[0]


@pytest.mark.parametrize(
    ("from_bytes", "encoded"),
    [(1, {0, 1, 2, 3}), (64, {0, 2, 3}), (65, {0, 2}), (4800, {0, 2}), (4801, {0}), (12001, set())],
)
def test_parameters_below_the_size_come_exactly(from_bytes: int, encoded: set[int]) -> None:
    """They are 12,000, 28, 4,800 and 64 bytes long; a parameter of just so many has the codec."""
    models = [Model(SIZES) for _ in range(2)]
    chance = torch.Generator().manual_seed(1)
    own = [[torch.randn(size, generator=chance) for size in SIZES] for _ in models]
    came = in_memory(models, f"codec=int8,codec_from={from_bytes}", 0, own)
    off = {n for n, sums in enumerate(came) if not torch.equal(sums, own[0][n] + own[1][n])}
    assert off == encoded
    assert {n for n, left in enumerate(models[0].left_out()) if bool(left.any())} == encoded


def test_a_change_of_the_size_loses_nothing_of_the_residuals() -> None:
    """What was encoded in one step and is exact in the next gets what was left out."""
    models = [Model(SIZES) for _ in range(3)]
    chance = torch.Generator().manual_seed(2)
    asked = [torch.zeros(size) for size in SIZES]
    for step, from_bytes in enumerate([1, 4801, 65]):
        own = [[torch.randn(size, generator=chance) for size in SIZES] for _ in models]
        came = in_memory(models, f"codec=int4,codec_from={from_bytes}", step, own)
        for n in range(len(SIZES)):
            asked[n] += sum(one[n] for one in own) - came[n]
    for n in range(len(SIZES)):
        left_out = torch.stack([model.left_out()[n] for model in models]).sum(0)
        torch.testing.assert_close(asked[n], left_out, rtol=1e-4, atol=1e-4)


def test_the_layout_keeps_strides() -> None:
    """A convolution's gradient may lie channel by channel; its copy lies as it does."""
    model = Model([(20, 5, 4, 4), (3,)])
    images = model.parameters[0].data.to(memory_format=torch.channels_last)
    first, second = model.parameters
    layout = Layout(1603, ((first, images.size(), images.stride(), 3), (second, second.size(), (1,), 0)))
    values = torch.arange(1603.0)
    views = layout.by_parameter(values)
    packed = Layout.packed(layout.places)
    copy = packed.by_parameter(packed.flat(views))
    assert all(torch.equal(copy[one], views[one]) for one in model.parameters)
    assert copy[first].stride() == images.stride()
