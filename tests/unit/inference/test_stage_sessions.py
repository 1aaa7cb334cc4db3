"""One stage of a split model: order, repeats, acknowledgements and replays, with a link in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from peerloom.errors import FailedPreconditionError, InvalidArgumentError, ResourceExhaustedError
from peerloom.inference.server import stage_sessions
from peerloom.inference.server.batch_queue import BatchQueue
from peerloom.inference.server.building import Part
from peerloom.inference.server.model_cache import LoadedPart
from peerloom.inference.server.stage_sessions import StageSession
from peerloom.inference.server.torch_computing import TorchExecutor, TorchPart
from peerloom.kit.clock import ManualClock
from peerloom.kit.tensors import array_of, message_of
from peerloom.v1.inference_pb2 import Activation, LinkLost, RunStageResponse
from peerloom.worker.plan.chain import Layer

LIMIT_S = 60.0


class Doubling(nn.Module):
    """Doubles, counts how often, and refuses 13."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        if bool((x == 13).any()):
            raise ValueError("unlucky")
        return 2 * x


class Line:
    """Where a session's outputs go, in memory."""

    def __init__(self, address: str) -> None:
        self.address, self.sent, self.closed = address, list[int](), False
        self.arrived = asyncio.Event()

    def send(self, activation: Activation) -> None:
        self.sent.append(activation.sequence)
        self.arrived.set()

    def close(self) -> None:
        self.closed = True


class Bench:
    """A session over one doubling layer, and the lines that it opened."""

    def __init__(self) -> None:
        self.model, self.executor, self.lines = Doubling(), TorchExecutor(), list[Line]()
        part = Part("d" * 64, 0, 1, [Layer("0", self.model)], torch.device("cpu"))
        self.part = TorchPart(part, self.executor, ManualClock())
        self.session = StageSession("s", self.part, self._open, incremental=False)

    def _open(self, address: str, session_id: str, on_lost: Callable[[LinkLost], None]) -> Line:
        self.lines.append(Line(address))
        return self.lines[-1]

    async def give(self, *sequences: int) -> None:
        for sequence in sequences:
            tensor = message_of(np.array([float(sequence)]))
            await self.session.take(Activation(sequence=sequence, tensor=tensor))

    async def sent(self, stream: int, count: int) -> list[int]:
        async with asyncio.timeout(LIMIT_S):
            while len(self.lines[stream].sent) < count:
                self.lines[stream].arrived.clear()
                await self.lines[stream].arrived.wait()
        return self.lines[stream].sent


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.session.close()
    made.executor.close()


async def test_nothing_is_computed_for_a_client_that_reads_no_answers(bench: Bench) -> None:
    """16 answers wait to be read, one is about to, 32 inputs behind it; the next input waits outside."""
    tensor = message_of(np.array([1.0]))
    for sequence in range(1, 1 + 16 + 1 + 32):
        await asyncio.wait_for(bench.session.take(Activation(sequence=sequence, tensor=tensor)), LIMIT_S)
    following = asyncio.create_task(bench.session.take(Activation(sequence=50, tensor=tensor)))
    await asyncio.sleep(0)
    assert (bench.session.responses.qsize(), following.done()) == (16, False)
    for sequence in range(1, 51):
        response = await asyncio.wait_for(bench.session.responses.get(), LIMIT_S)
        assert isinstance(response, RunStageResponse)
        assert response.output.sequence == sequence
    await following


async def test_what_nobody_acknowledges_is_kept_up_to_a_limit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_sessions, "KEPT_LIMIT_BYTES", 60)  # an output takes 26 to 30
    bench.session.link("one:1", "t")
    await bench.give(1, 2)
    await bench.sent(0, 2)
    bench.session.acknowledge(1)
    await bench.give(3)
    assert await bench.sent(0, 3) == [1, 2, 3]
    await bench.give(4)
    refusal = await asyncio.wait_for(bench.session.responses.get(), LIMIT_S)
    assert isinstance(refusal, ResourceExhaustedError)
    assert "Acknowledge" in refusal.message


async def test_a_batch_leaves_out_who_is_gone(bench: Bench) -> None:
    loaded = LoadedPart(bench.part)
    queue = BatchQueue(loaded, 8, 0.0, 100, ManualClock())
    gone = asyncio.create_task(queue.infer(np.array([[1.0]])))
    stays = asyncio.create_task(queue.infer(np.array([[2.0]])))
    await asyncio.sleep(0)
    gone.cancel()
    answer = await asyncio.wait_for(stays, LIMIT_S)
    assert (answer.outputs.tolist(), answer.batch_samples) == ([[4.0]], 1)


async def test_the_last_stage_answers_the_client(bench: Bench) -> None:
    await bench.give(1)
    response = await asyncio.wait_for(bench.session.responses.get(), LIMIT_S)
    assert response is not None
    assert not isinstance(response, Exception)
    assert array_of(response.output.tensor).tolist() == [2.0]


async def test_a_repeat_is_not_computed_again(bench: Bench) -> None:
    bench.session.link("next:1", "t")
    await bench.give(1, 2, 1, 2, 3)
    assert await bench.sent(0, 3) == [1, 2, 3]
    assert bench.model.runs == 3


async def test_a_new_next_stage_gets_all_that_was_not_acknowledged(bench: Bench) -> None:
    bench.session.link("next:1", "t")
    await bench.give(1, 2, 3)
    await bench.sent(0, 3)
    bench.session.acknowledge(1)
    bench.session.link("other:1", "u")
    assert bench.lines[0].closed
    await bench.give(4)
    assert await bench.sent(1, 3) == [2, 3, 4]
    assert bench.model.runs == 4


async def test_a_replacement_begins_where_the_acknowledgement_stood(bench: Bench) -> None:
    bench.session.link("next:1", "t")
    await bench.give(5, 6)
    assert await bench.sent(0, 2) == [5, 6]


async def test_a_gap_is_refused(bench: Bench) -> None:
    bench.session.link("next:1", "t")
    await bench.give(1, 3)
    error = await asyncio.wait_for(bench.session.responses.get(), LIMIT_S)
    assert isinstance(error, InvalidArgumentError)
    assert bench.lines[0].sent == [1]


async def test_a_model_that_fails_is_told_as_its_own_failure(bench: Bench) -> None:
    await bench.give(13)
    error = await asyncio.wait_for(bench.session.responses.get(), LIMIT_S)
    assert isinstance(error, FailedPreconditionError)
    assert "ValueError: unlucky" in error.message


async def test_requests_that_wait_together_are_computed_together(bench: Bench) -> None:
    """The first is under way while the others arrive, so two runs serve all four, each with its own rows."""
    queue, gate = BatchQueue(LoadedPart(bench.part), 64, 0.0, 100, ManualClock()), asyncio.Event()
    holding = asyncio.create_task(
        bench.executor.run(lambda: asyncio.run_coroutine_threadsafe(gate.wait(), loop).result())
    )
    loop = asyncio.get_running_loop()
    asks = [asyncio.create_task(queue.infer(np.full((n, 1), float(n)))) for n in (1, 2, 3)]
    await asyncio.sleep(0)
    gate.set()
    await holding
    answers = await asyncio.wait_for(asyncio.gather(*asks), LIMIT_S)
    assert [answer.outputs.tolist() for answer in answers] == [[[2.0]], [[4.0]] * 2, [[6.0]] * 3]
    assert [answer.batch_samples for answer in answers] == [6, 6, 6]
    assert bench.model.runs == 1
