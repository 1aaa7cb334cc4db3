"""Asks others the same, now and then, and acts on what comes of it: evidence, and whom to ask no more."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from peerloom.errors import PeerloomError
from peerloom.inference.client.answer_evidence import AnswerEvidence
from peerloom.inference.client.local import LocalRoute
from peerloom.inference.client.opinion_rules import OpinionVerdict, chance_of_asking, verdict
from peerloom.inference.client.remote import RemoteAnswer, split_rows
from peerloom.inference.client.replica import Replica, ReplicaNode
from peerloom.inference.client.replicas import Replicas

Array = npt.NDArray[Any]
Ask = Callable[[Replica, str, Array, float], Awaitable[RemoteAnswer]]
BACKGROUND_MOST = 2  # at once; what is due beyond them isn't asked
BACKGROUND_LIMIT_S = 60.0
CLOSE_LIMIT_S = 2.0  # that closing waits for those under way, as a job's end does for its evidence
_TRIED = 3  # nodes for one opinion
_FIRST, _HERE = "first", "here"  # beside the ids of nodes


@dataclass(frozen=True, eq=False)
class CheckedAnswer:
    """What was answered to which inputs, and by whom: several nodes for a split model."""

    digest: str
    inputs: Array
    outputs: Array
    nodes: tuple[ReplicaNode, ...]


@dataclass(frozen=True, eq=False)
class Opinion:
    """The outputs that most bear out, with the names of who gave them, confirmed them, and stands apart."""

    outputs: Array
    nodes: tuple[str, ...]
    confirmed_by: tuple[str, ...] = ()
    deviating: tuple[str, ...] = ()


class SecondOpinions:
    """Agreements of one client's nodes, counted since it began. Belongs to one event loop.

    `ask` asks a node and keeps evidence of it; `chance` decides when, and whom.
    """

    def __init__(
        self,
        replicas: Replicas,
        local: LocalRoute,
        evidence: AnswerEvidence,
        ask: Ask,
        chance: random.Random,
    ) -> None:
        self._replicas, self._local, self._evidence = replicas, local, evidence
        self._ask, self._chance = ask, chance
        self._agreements: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    def is_due(self, nodes: Sequence[ReplicaNode]) -> bool:
        """Draws whether this answer is checked; the node that was checked least decides how likely."""
        fewest = min(self._agreements[node.node_id] for node in nodes)
        return self._chance.random() < chance_of_asking(fewest)

    def check_later(self, answer: CheckedAnswer) -> None:
        """Checks an answer that was given already, in a task of its own."""
        if len(self._tasks) < BACKGROUND_MOST:
            # The caller may write into both arrays now, and an honest node must not look wrong by that.
            kept = replace(answer, inputs=answer.inputs.copy(), outputs=answer.outputs.copy())
            task = asyncio.create_task(self._check_alone(kept))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def check(self, answer: CheckedAnswer, timeout_s: float) -> Opinion:
        """Asks up to two others, of owners of their own, until most agree; else computes it here if it can.

        What is there after `timeout_s` seconds decides. Raises nothing that says only that nobody answered.
        """
        voices = {_FIRST: answer.nodes}
        outputs = {_FIRST: answer.outputs}
        with suppress(TimeoutError, PeerloomError):
            async with asyncio.timeout(timeout_s):
                await self._gather(answer, voices, outputs, timeout_s)
        if len(outputs) == 1:
            return Opinion(answer.outputs, _names([_FIRST], voices))
        found = verdict(outputs, _HERE if _HERE in outputs else "")
        self._act(found, voices)
        taken, *confirming = found.right or (_FIRST,)
        deviating = _names((*found.wrong, *found.doubtful), voices)
        return Opinion(outputs[taken], _names([taken], voices), _names(confirming, voices), deviating)

    async def close(self) -> None:
        """Waits a moment for what is under way, and gives up the rest."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=CLOSE_LIMIT_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _check_alone(self, answer: CheckedAnswer) -> None:
        await self.check(answer, BACKGROUND_LIMIT_S)

    async def _gather(
        self,
        answer: CheckedAnswer,
        voices: dict[str, tuple[ReplicaNode, ...]],
        outputs: dict[str, Array],
        timeout_s: float,
    ) -> None:
        while len(outputs) < 3 and (len(outputs) == 1 or verdict(outputs).doubtful):
            owners = {node.owner for nodes in voices.values() for node in nodes}
            asked = await self._another(answer, owners, timeout_s)
            if asked is None:
                break
            node, outputs_there = asked
            voices[node.node_id], outputs[node.node_id] = (node,), outputs_there
        if verdict(outputs).doubtful and not self._local.why_not():
            voices[_HERE] = ()
            outputs[_HERE], _ = await self._local.infer(answer.digest, answer.inputs)

    async def _another(
        self, answer: CheckedAnswer, owners: set[str], timeout_s: float
    ) -> tuple[ReplicaNode, Array] | None:
        """One that holds the model and belongs to none of the `owners`, by chance; None: there is none."""
        others = [one for one in await self._replicas.holding(answer.digest) if one.node.owner not in owners]
        self._chance.shuffle(others)
        for replica in others[:_TRIED]:
            with suppress(PeerloomError):
                if await self._replicas.make_ready(replica, answer.digest) is not None:
                    continue
                parts = [
                    (await self._ask(replica, answer.digest, part, timeout_s)).outputs
                    for part in split_rows(answer.inputs)
                ]
                return replica.node, np.concatenate(parts)
        return None

    def _act(self, found: OpinionVerdict, voices: dict[str, tuple[ReplicaNode, ...]]) -> None:
        others = ", ".join(_names(found.right, voices))
        for name in found.right:
            self._agreements.update(node.node_id for node in voices[name])
        for name in found.wrong:
            self._forget_agreements(voices[name])
            if len(voices[name]) == 1:
                (node,) = voices[name]
                self._evidence.answered_wrongly(node.node_id, f"it answered otherwise than {others}")
                self._replicas.distrust(node)
            for node in voices[name] if len(voices[name]) > 1 else ():
                detail = f"its stages answered otherwise than {others}, and which of them can't be told"
                self._evidence.unfinished(node.node_id, detail)
        for name in found.doubtful:
            self._forget_agreements(voices[name])
            detail = f"{', '.join(_names(found.doubtful, voices))} differ, and nobody can say who is right"
            for node in voices[name]:
                self._evidence.unfinished(node.node_id, detail)

    def _forget_agreements(self, nodes: Sequence[ReplicaNode]) -> None:
        for node in nodes:
            del self._agreements[node.node_id]


def _names(voiced: Sequence[str], voices: dict[str, tuple[ReplicaNode, ...]]) -> tuple[str, ...]:
    """The nodes behind these answers; "here" for the one computed by the caller."""
    named = [("here",) if name == _HERE else tuple(n.name for n in voices[name]) for name in voiced]
    return tuple(name for names in named for name in names)
