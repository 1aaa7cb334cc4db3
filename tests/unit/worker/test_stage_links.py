"""Tensors from stage to stage over real sockets: any form, both ways at once, and a peer that is lost."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import torch
from torch import Tensor

from peerloom.errors import InvalidArgumentError
from peerloom.kit.sync_method import BF16, INT8, NONE
from peerloom.v1.trainer_pb2 import StoreEntry
from peerloom.worker.group.waits import TensorFuture
from peerloom.worker.mesh.connecting import MeshMeeting
from peerloom.worker.mesh.mesh import Mesh
from peerloom.worker.plan.stage_links import MeshLinks
from peerloom.worker.plan.stage_message import FORM_NUMBERS, TensorForm
from peerloom.worker.store_entries import StoreEntries

LIMIT_S = 60.0
FORMS: list[Callable[[], Tensor]] = [
    lambda: torch.rand(2, 3),
    lambda: torch.tensor(7),
    lambda: torch.rand(4, 0, 2),
    lambda: torch.rand(5, 3).t(),  # not contiguous
    lambda: torch.rand(3).bfloat16(),
    lambda: torch.tensor([True, False]),
    lambda: torch.arange(300_000),
]


class Meeting:
    """As much of a group as links need: its mesh, and waits that end with it."""

    def __init__(self, rank: int, ranks: int, mesh: Mesh) -> None:
        self.rank, self.world_size, self.mesh = rank, ranks, mesh

    def result(self, future: TensorFuture) -> Tensor:
        found = future.wait()
        if isinstance(found, str):
            raise RuntimeError(found)
        return found


@pytest.fixture
def links() -> Iterator[list[MeshLinks]]:
    """The links of two stages."""
    entries: list[StoreEntries] = []

    def tell(entry: StoreEntry) -> None:
        for each in entries:
            each.heard(entry)

    entries += [StoreEntries(1, tell) for _ in range(2)]
    meshes = [Mesh(MeshMeeting(n, 2, entries[n], LIMIT_S, "127.0.0.1"), LIMIT_S) for n in range(2)]
    for mesh in meshes:
        mesh.begin_meeting()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(Mesh.connect, meshes))
    yield [MeshLinks(Meeting(n, 2, meshes[n])) for n in range(2)]  # type: ignore[arg-type]  # see there
    for mesh in meshes:
        mesh.close()


def test_tensors_of_any_form_come_in_order_both_ways_at_once(links: list[MeshLinks]) -> None:
    torch.manual_seed(1)
    sent = [[make() for make in FORMS] for _ in range(2)]

    def exchange(stage: int) -> list[tuple[Tensor, bool]]:
        for number, tensor in enumerate(sent[stage]):
            links[stage].send(1 - stage, tensor, wants_gradient=number % 2 == 1)
        came = [links[stage].receive(1 - stage) for _ in FORMS]
        links[stage].flush()
        return [(each.tensor, each.wants_gradient) for each in came]

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(exchange, range(2)))
    for stage in range(2):
        for number, (tensor, wants_gradient) in enumerate(found[1 - stage]):
            expected = sent[stage][number]
            assert tensor.dtype == expected.dtype
            assert torch.equal(tensor, expected)
            assert wants_gradient == (number % 2 == 1)
    assert links[0].traffic.bytes == links[1].traffic.bytes > 2_400_000


def test_by_a_codec_a_tensor_comes_shorter_and_nearly_the_same(links: list[MeshLinks]) -> None:
    """int8: a scale of four bytes for 256 values of a byte each, off by at most half a unit of the scale."""
    sent = torch.linspace(-1, 1, 3 * 20_480).view(3, 20_480)
    few, whole = torch.rand(7), torch.arange(50_000)
    with ThreadPoolExecutor(2) as pool:
        came = pool.submit(links[1].receive, 0)
        links[0].send(1, sent, wants_gradient=True, codec=INT8)
        links[0].flush()
        found = came.result(LIMIT_S)
    form_bytes = 8 * FORM_NUMBERS
    assert links[0].traffic.bytes == form_bytes + 240 * (4 + 256)
    assert (found.tensor.shape, found.tensor.dtype, found.wants_gradient) == (sent.shape, sent.dtype, True)
    assert torch.allclose(found.tensor, sent, rtol=0, atol=0.5 / 127 + 1e-6)
    assert TensorForm.of(few, False, INT8).codec == NONE, "it would save no packet"
    assert TensorForm.of(whole, False, INT8).codec == NONE, "whole numbers mean something else"
    assert TensorForm.of(sent.bfloat16(), False, BF16).codec == NONE, "it is what it would become"


def test_a_stage_that_is_lost_ends_the_wait_for_it(links: list[MeshLinks]) -> None:
    failed: list[str] = []

    def wait() -> None:
        with suppress(RuntimeError):
            links[0].receive(1)
            return
        failed.append("ended")

    waiting = threading.Thread(target=wait)
    waiting.start()
    links[1]._mesh.close()
    waiting.join(LIMIT_S)
    assert failed == ["ended"]


def test_what_a_stage_may_not_announce_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="complex64"):
        TensorForm.of(torch.zeros(2, dtype=torch.complex64), False)
    form = TensorForm.of(torch.zeros(2, 3), True)
    assert TensorForm.of_numbers(form.to_numbers()) == TensorForm(torch.float32, (2, 3), True)
    for place, wrong in ((0, 99), (0, -1), (1, 13), (2, -5)):
        changed = form.to_numbers()
        changed[place] = wrong
        with pytest.raises(RuntimeError, match="worker mesh: a stage announced no tensor"):
            TensorForm.of_numbers(changed)
