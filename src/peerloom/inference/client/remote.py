"""One node answers; a second one is asked when the first is late or lost."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from peerloom.errors import (
    CancelledError,
    DataLossError,
    DeadlineError,
    PeerloomError,
    ResourceExhaustedError,
    UnavailableError,
)
from peerloom.inference.client.answer_evidence import AnswerEvidence
from peerloom.inference.client.coming_again import pause_s
from peerloom.inference.client.hedging import hedge_after_s, may_hedge, silent_after_s
from peerloom.inference.client.replica import Replica, ReplicaNode
from peerloom.inference.client.replicas import Replicas
from peerloom.kit.backoff import pauses
from peerloom.kit.clock import Clock
from peerloom.kit.tensors import LIMIT_BYTES, array_of, check_finite, message_of
from peerloom.v1.inference_pb2 import InferResponse

Array = npt.NDArray[Any]
ATTEMPTS = 4
LEAST_CALL_S = 0.01  # with less nobody is asked anew


@dataclass(frozen=True, eq=False)
class RemoteAnswer:
    """What nodes answered, and whether it was the second one asked because the first was late.

    `served_by` is one node, or more where the inputs were too large for one message.
    """

    outputs: Array
    served_by: tuple[ReplicaNode, ...]
    model_s: float
    queue_s: float
    hedged: bool


class RemoteRoute:
    """Asks single nodes, counts second requests against their budget, and keeps evidence of both."""

    def __init__(self, replicas: Replicas, evidence: AnswerEvidence, clock: Clock) -> None:
        self._replicas, self._evidence, self._clock = replicas, evidence, clock
        self._requests, self._hedges = 0, 0

    async def infer(
        self, digest: str, inputs: Array, timeout_s: float, *, hedge: bool, first: str = ""
    ) -> RemoteAnswer:
        """The outputs, from the best node that answers, or the one named `first`.

        Raises a PeerloomError when none does in time.
        """
        deadline_s, parts = self._clock.monotonic_s() + timeout_s, split_rows(inputs)
        answers = [await self._one(digest, part, deadline_s, hedge=hedge, first=first) for part in parts]
        return RemoteAnswer(
            np.concatenate([answer.outputs for answer in answers]),
            tuple({node: None for answer in answers for node in answer.served_by}),
            sum(answer.model_s for answer in answers),
            sum(answer.queue_s for answer in answers),
            any(answer.hedged for answer in answers),
        )

    async def ask(self, replica: Replica, digest: str, inputs: Array, timeout_s: float) -> RemoteAnswer:
        """One node's answer; what became of it is evidence. Raises a PeerloomError."""
        started_s, sent = self._clock.monotonic_s(), message_of(inputs)
        try:
            answer = await replica.infer(digest, sent, len(inputs), timeout_s)
            outputs = _checked(answer, len(inputs), replica.node.name)
        except CancelledError as error:
            # Nobody here cancels by gRPC: the connection was closed, or the server let the call go unbegun.
            message = f"The connection to {replica.node.name} was closed during the call."
            raise UnavailableError(message, reason="CONNECTION_CLOSED") from error
        except ResourceExhaustedError:
            raise  # it said so in time: a busy node isn't a bad one
        except (UnavailableError, DeadlineError, DataLossError) as error:
            self._evidence.unfinished(replica.node.node_id, f"gave no answer: {error.message}")
            if isinstance(error, DeadlineError):
                # It is late, and its connection stands: a crowd that all connected anew would make it later.
                self._replicas.put_off(replica)
            else:
                await self._replicas.drop(replica)
            raise
        network_s = max(0.0, self._clock.monotonic_s() - started_s - answer.model_s - answer.queue_s)
        moved_bytes = len(sent.content) + len(answer.outputs.content)
        self._evidence.answered(replica.node.node_id, network_s, moved_bytes)
        return RemoteAnswer(outputs, (replica.node,), answer.model_s, answer.queue_s, False)

    async def _one(
        self, digest: str, inputs: Array, deadline_s: float, *, hedge: bool, first: str
    ) -> RemoteAnswer:
        self._requests += 1
        said, refusals = dict[str, PeerloomError](), 0
        busy: ResourceExhaustedError | None = None
        while True:
            replica = await self._another(digest, said, first)
            try:
                return await self._hedged(replica, digest, inputs, deadline_s, hedge, list(said))
            except (UnavailableError, DeadlineError, DataLossError) as error:
                said[replica.node.name] = error
                # A call's own deadline may end it a moment before ours: clocks and their sums are rounded.
                is_over = self._clock.monotonic_s() + LEAST_CALL_S >= deadline_s
                if is_over and busy is not None:
                    raise busy from error  # which says when to come again, and a time that is over doesn't
                if is_over or len(said) == ATTEMPTS:
                    raise
            except ResourceExhaustedError as error:
                busy = error
                refusals += 1  # a busy node isn't a lost one: its callers come again until their deadline
                await self._come_again(error, deadline_s, refusals)

    async def _another(self, digest: str, said: Mapping[str, PeerloomError], first: str) -> Replica:
        """One not asked yet. Raises UnavailableError, with what all others `said`, if there is none."""
        try:
            (replica,) = await self._replicas.ready(digest, 1, list(said), first)
        except PeerloomError as error:
            if not said:
                raise
            asked = "; ".join(f"{name}: {each.message}" for name, each in said.items())
            message = f"{error.message} Those asked gave no answer: {asked}"
            raise UnavailableError(message, reason="NO_INFERENCE_NODE") from error
        return replica

    async def _come_again(self, error: ResourceExhaustedError, deadline_s: float, refusals: int) -> None:
        hint_s = float(error.metadata.get("retry_after_s", "nan"))
        after_s = pause_s(hint_s, refusals, pauses.random())
        if not self._clock.monotonic_s() + after_s < deadline_s:
            raise error
        await asyncio.sleep(after_s)

    async def _hedged(
        self, replica: Replica, digest: str, inputs: Array, deadline_s: float, hedge: bool, tried: list[str]
    ) -> RemoteAnswer:
        first = asyncio.create_task(self._ask_until(deadline_s, replica, digest, inputs))
        tasks = {first}
        try:
            if hedge:
                estimate_s = replica.times(digest).predict_s(len(inputs)) + replica.round_trip_s
                late_s = hedge_after_s(replica.latencies_s, estimate_s)
                await asyncio.wait(tasks, timeout=late_s)
                others = [*tried, replica.node.name]
                second = None if first.done() else await self._second(digest, others)
                if second is not None:
                    tasks.add(asyncio.create_task(self._ask_until(deadline_s, second, digest, inputs)))
                elif (await asyncio.wait(tasks, timeout=silent_after_s(late_s)))[1]:
                    tasks.add(asyncio.create_task(self._elsewhere(digest, inputs, deadline_s, others)))
            return await _first_good(first, tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _second(self, digest: str, excluded: list[str]) -> Replica | None:
        if not may_hedge(self._requests, self._hedges):
            return None
        # Only one that holds the model ready: loading it there would come too late.
        known = await self._replicas.known(digest, excluded)
        second = next((replica for replica in known if digest in replica.loaded), None)
        self._hedges += second is not None
        return second

    async def _elsewhere(
        self, digest: str, inputs: Array, deadline_s: float, excluded: list[str]
    ) -> RemoteAnswer:
        """From another node, beyond the budget: one that is silent so long is likely to stay so."""
        (replica,) = await self._replicas.ready(digest, 1, excluded)
        return await self._ask_until(deadline_s, replica, digest, inputs)

    async def _ask_until(
        self, deadline_s: float, replica: Replica, digest: str, inputs: Array
    ) -> RemoteAnswer:
        return await self.ask(
            replica, digest, inputs, max(LEAST_CALL_S, deadline_s - self._clock.monotonic_s())
        )


async def _first_good(
    first: "asyncio.Task[RemoteAnswer]", tasks: "set[asyncio.Task[RemoteAnswer]]"
) -> RemoteAnswer:
    waiting = set(tasks)
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if task.exception() is None:
                return task.result() if task is first else replace(task.result(), hedged=True)
    return first.result()


def split_rows(inputs: Array) -> list[Array]:
    """The inputs in parts that fit a message. A single row that doesn't is left to message_of to refuse."""
    rows = max(1, int(LIMIT_BYTES // max(1, inputs[:1].nbytes)))
    return [inputs[start : start + rows] for start in range(0, len(inputs), rows)]


def _checked(answer: InferResponse, samples: int, node: str) -> Array:
    try:
        outputs = array_of(answer.outputs, "outputs")
        if outputs.shape[:1] != (samples,):
            raise DataLossError(f"{samples} rows were due, {list(outputs.shape)} came.")
        check_finite(outputs, "outputs")
    except PeerloomError as error:
        raise DataLossError(
            f"{node} answered rubbish: {error.message} Another node is asked.", reason="RUBBISH"
        ) from error
    return outputs
