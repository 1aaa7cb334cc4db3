"""The three routes to an answer, and the choice among them."""

import asyncio
import random
from dataclasses import replace
from typing import Any, get_args

import numpy.typing as npt

from peerloom.client.models import find_digest
from peerloom.client.remote_services import Services
from peerloom.client.types.inference import Combination, Inference, Mode, OpinionMode, RouteEstimate
from peerloom.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    PeerloomError,
    ResourceExhaustedError,
    UnavailableError,
)
from peerloom.inference.client.answer_evidence import AnswerEvidence
from peerloom.inference.client.classes import with_classes
from peerloom.inference.client.costs import after_refusal, choose, no_way
from peerloom.inference.client.ensemble import combine
from peerloom.inference.client.estimator import Estimates, Estimator
from peerloom.inference.client.input_files import batch_of
from peerloom.inference.client.local import LocalRoute
from peerloom.inference.client.remote import RemoteAnswer, RemoteRoute
from peerloom.inference.client.replica import ReplicaNode
from peerloom.inference.client.replicas import AWAY, Replicas
from peerloom.inference.client.second_opinions import CheckedAnswer, SecondOpinions
from peerloom.inference.client.split import SplitRoute
from peerloom.kit.checks import check_range
from peerloom.kit.clock import Clock
from peerloom.kit.raw_input import RawInput, raw_input_in
from peerloom.v1.inference_pb2 import ModelDescription

Array = npt.NDArray[Any]


class InferenceRouter:
    """Inference for one client: what it has met, measured and learned. Belongs to one event loop."""

    def __init__(self, services: Services, clock: Clock, chance: random.Random) -> None:
        self._services, self.clock = services, clock
        self.local = LocalRoute(services, clock)
        self.replicas = Replicas(services, self.local.idle, clock)
        self.evidence = AnswerEvidence(services.selector.peer, clock)
        self.remote = RemoteRoute(self.replicas, self.evidence, clock)
        self.split = SplitRoute(self.replicas, self.evidence, clock)
        self.opinions = SecondOpinions(self.replicas, self.local, self.evidence, self.remote.ask, chance)
        self._estimator = Estimator(self.replicas, self.local, self.split.times, clock)
        self._descriptions: dict[str, ModelDescription] = {}
        self._digests: dict[str, str] = {}

    async def infer(
        self,
        model: str,
        inputs: Any,
        mode: Mode,
        timeout_s: float,
        *,
        nodes: int = 1,
        aggregate: Combination = "mean",
        stages: int = 0,
        micro_batches: int = 8,
        hedge: bool = True,
        second_opinion: OpinionMode = "auto",
    ) -> Inference:
        """The outputs and how they came about; see AsyncClient.infer."""
        started_s = self.clock.monotonic_s()
        _check(mode, timeout_s, nodes, stages, micro_batches, second_opinion)
        digest = await self.digest(model)
        raw, dtype = await self._takes(digest, mode)
        batch = await asyncio.to_thread(batch_of, inputs, raw, dtype)
        if not batch.ndim or not len(batch):
            raise InvalidArgumentError.of_field(
                "inputs", f"{batch.dtype}{list(batch.shape)}", "1 or more samples"
            )
        if nodes > 1:
            answer = await self._several(digest, batch, nodes, aggregate, timeout_s, started_s)
        else:
            answer = await self._answer(
                digest, batch, mode, timeout_s, started_s, stages, micro_batches, hedge, second_opinion
            )
        return with_classes(answer, raw, is_vote=nodes > 1 and aggregate == "vote")

    async def _answer(
        self,
        digest: str,
        batch: Array,
        mode: Mode,
        timeout_s: float,
        started_s: float,
        stages: int,
        micro_batches: int,
        hedge: bool,
        second_opinion: OpinionMode,
    ) -> Inference:
        reason, estimates, first = "you asked for it", tuple[RouteEstimate, ...](), ""
        if mode == "auto":
            estimates, first = await self._estimates(digest, batch, micro_batches)
            mode, reason = choose(estimates)
        if mode == "remote":
            try:
                answer = await self.remote.infer(digest, batch, timeout_s, hedge=hedge, first=first)
            except ResourceExhaustedError as error:
                estimates = after_refusal(estimates, error)
                mode, reason = choose(estimates)
            else:
                found = _of_remote(answer, reason, estimates, self.clock.monotonic_s() - started_s)
                checked = CheckedAnswer(digest, batch, answer.outputs, answer.served_by)
                return await self._checked(found, checked, second_opinion, timeout_s)
        if mode == "split":
            description = await self.description(digest)
            split = await self.split.infer(description, batch, timeout_s, stages, micro_batches)
            seconds = self.clock.monotonic_s() - started_s
            why = split.reason if reason == "you asked for it" else reason
            names = _names(split.served_by)
            found = Inference(
                split.outputs, mode, why, names, seconds, split.model_s, 0.0, estimates, False, split.replaced
            )
            return await self._checked(
                found, CheckedAnswer(digest, batch, split.outputs, split.served_by), second_opinion, timeout_s
            )
        outputs, model_s = await self.local.infer(digest, batch)
        return Inference(
            outputs, "local", reason, (), self.clock.monotonic_s() - started_s, model_s, 0.0, estimates
        )

    async def digest(self, model: str) -> str:
        """The digest behind a name, the beginning of a digest, or a job. Raises NotFoundError."""
        # "latest" moves; a digest, even in part, doesn't.
        if model in self._digests:
            return self._digests[model]
        found = await find_digest(self._services, model)
        if found.startswith(model):
            self._digests[model] = found
        return found

    async def description(self, digest: str) -> ModelDescription:
        """What the model consists of, from a node that can describe it. Raises a PeerloomError."""
        if digest in self._descriptions:
            return self._descriptions[digest]
        failures: list[PeerloomError] = []
        for replica in await self.replicas.known(digest):
            try:
                await replica.open()
                holders = await self.replicas.holders()
                found = replica.loaded.get(digest) or await replica.load(digest, holders, describe_only=True)
            except AWAY as error:
                failures.append(error)
                await self.replicas.drop(replica)
            except FailedPreconditionError as error:
                failures.append(error)  # this node can't: its owner's will, or the task isn't installed there
            else:
                self._descriptions[digest] = found
                return found
        raise self.replicas.nobody(digest, failures)

    async def _checked(
        self, found: Inference, answer: CheckedAnswer, second_opinion: OpinionMode, timeout_s: float
    ) -> Inference:
        """The same, or what most say where a second opinion was due and is waited for."""
        if second_opinion == "auto":
            # Without a door nobody knows whose nodes are, and every machine is trusted.
            second_opinion = "background" if self._services.dialer.identity is not None else "off"
        if second_opinion == "off" or not self.opinions.is_due(answer.nodes):
            return found
        if second_opinion == "background":
            self.opinions.check_later(answer)
            return found
        started_s = self.clock.monotonic_s()
        opinion = await self.opinions.check(answer, max(0.001, timeout_s - found.seconds))
        return replace(
            found,
            outputs=opinion.outputs,
            nodes=opinion.nodes,
            seconds=found.seconds + self.clock.monotonic_s() - started_s,
            confirmed_by=opinion.confirmed_by,
            deviating=opinion.deviating,
        )

    async def close(self) -> None:
        """Hands over the last evidence and closes all channels."""
        await self.opinions.close()
        await self.split.close()
        await self.evidence.close()
        await self.replicas.close()
        self.local.close()

    async def _takes(self, digest: str, mode: Mode) -> tuple[RawInput | None, str]:
        """What the model declares of raw inputs, and the type of its tensors."""
        if mode != "local":
            try:
                found = await self.description(digest)
                return raw_input_in(found), found.input_dtype
            except PeerloomError as error:
                if mode != "auto":
                    raise
                if why := self.local.why_not():
                    if not isinstance(error, UnavailableError):
                        raise
                    ways = (RouteEstimate("remote", None, error.message), RouteEstimate("local", None, why))
                    raise no_way(ways) from error
        model = await self.local.model(digest)
        return model.raw_input, model.input_dtype

    async def _estimates(self, digest: str, batch: Array, micro_batches: int) -> Estimates:
        try:
            description = await self.description(digest)
        except PeerloomError as error:
            return self._estimator.without_nodes(digest, len(batch), error)
        return await self._estimator.estimate(description, batch, micro_batches)

    async def _several(
        self,
        digest: str,
        batch: Array,
        nodes: int,
        aggregate: Combination,
        timeout_s: float,
        started_s: float,
    ) -> Inference:
        replicas = await self.replicas.ready(digest, nodes)
        results = await asyncio.gather(
            *(self.remote.ask(replica, digest, batch, timeout_s) for replica in replicas),
            return_exceptions=True,
        )
        answers = {each.served_by[0].name: each for each in results if isinstance(each, RemoteAnswer)}
        if len(answers) < 2:
            failed = next((each for each in results if isinstance(each, BaseException)), None)
            raise UnavailableError(
                f"{nodes} nodes were to answer, {len(answers)} of {len(replicas)} asked did"
                f"{f': {failed}' if failed else '; no more hold or can hold the model.'}",
                reason="TOO_FEW_ANSWERS",
            )
        combined = combine({name: answer.outputs for name, answer in answers.items()}, aggregate)
        for replica in replicas:
            if replica.node.name in combined.deviating:
                self.evidence.unfinished(
                    replica.node.node_id, f"its answer stood apart from {len(answers)} others"
                )
        reason = f"{len(answers)} nodes asked, combined by {aggregate}"
        return Inference(
            combined.outputs,
            "remote",
            reason,
            tuple(answers),
            self.clock.monotonic_s() - started_s,
            max(answer.model_s for answer in answers.values()),
            max(answer.queue_s for answer in answers.values()),
            disagreement=combined.disagreement,
            deviating=combined.deviating,
        )


def _of_remote(
    answer: RemoteAnswer, reason: str, estimates: tuple[RouteEstimate, ...], seconds: float
) -> Inference:
    return Inference(
        answer.outputs,
        "remote",
        reason,
        _names(answer.served_by),
        seconds,
        answer.model_s,
        answer.queue_s,
        estimates,
        answer.hedged,
    )


def _names(nodes: tuple[ReplicaNode, ...]) -> tuple[str, ...]:
    return tuple(node.name for node in nodes)


def _check(
    mode: str, timeout_s: float, nodes: int, stages: int, micro_batches: int, second_opinion: str
) -> None:
    for name, value, words in (
        ("mode", mode, get_args(Mode)),
        ("second_opinion", second_opinion, get_args(OpinionMode)),
    ):
        if value not in words:
            raise InvalidArgumentError.of_field(name, value, ", ".join(words))
    check_range("timeout_s", timeout_s, 0.001, 1e6)
    check_range("nodes", nodes, 1, 100)
    check_range("stages", stages, 0, 1000)
    check_range("micro_batches", micro_batches, 1, 1024)
    if nodes > 1 and mode not in ("auto", "remote"):
        raise InvalidArgumentError.of_field("mode", mode, "auto or remote where several nodes are asked")
