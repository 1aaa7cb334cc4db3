"""Rounds of asking for compute on a live system, by the same calls as the trainer makes, without training.

A round: the selector ranks, the chosen agents are asked for slots and answer, and what they gave is freed
again. What the round saw is reported to the selector as evidence: a refusal as one, slots given as a
finished training, which is what would have followed. Nodes are asked blindly (min_slots 0), as in the
thesis.
"""

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.timestamp_pb2 import Timestamp

from peerloom.artifacts.transfer import put_file
from peerloom.kit.dialing import Dialer, SelectorPeer
from peerloom.kit.directory import Directory
from peerloom.kit.ids import new_request_id
from peerloom.v1.artifact_pb2 import Artifact
from peerloom.v1.node_agent_pb2 import RequestWorkRequest, StopWorkersRequest, Work
from peerloom.v1.registry_pb2 import ListNodesRequest, Node
from peerloom.v1.selector_pb2 import (
    EVIDENCE_KIND_TRAINING,
    EVIDENCE_KIND_TRANSFER,
    EVIDENCE_KIND_UNFINISHED,
    Evidence,
    EvidenceKind,
    RankedNode,
    ReportEvidenceRequest,
    Requirements,
    SelectNodesRequest,
    SelectNodesResponse,
)

TASK = "digits"
MOST_SLOTS = 1024
MODEL_BYTES = 200_000
NODE_PAGE = 1000


@dataclass(frozen=True)
class SelectionRound:
    """Who was asked, best first, and how many slots each of those who gave any gave; `took_s` in seconds."""

    asked: tuple[str, ...]
    given: dict[str, int]
    took_s: float

    @property
    def reached(self) -> bool:
        """At least one node gave compute."""
        return bool(self.given)


class Asker:
    """Asks in the name of one node, `own_name`, which is never chosen itself. Use `close` at the end."""

    def __init__(self, registry: str, own_name: str, policy: str) -> None:
        self._directory = Directory(Dialer(), registry)
        self._own_name = own_name
        self._policy = policy

    async def close(self) -> None:
        """Closes all lines."""
        await self._directory.close()

    async def give_models(self, path: Path) -> int:
        """Sends the file to every node but the own, one after the other, and reports each transfer; how
        many.
        """
        answer = await self._directory.registry.call(
            self._directory.registry.stub.ListNodes, ListNodesRequest(page_size=NODE_PAGE)
        )
        others: list[Node] = [node for node in answer.nodes if node.spec.name != self._own_name]
        seen = []
        for node in others:
            started_s = time.monotonic()
            async with Dialer().artifacts(node.spec.address) as agent:
                kept = await put_file(agent, path, Artifact(name=path.name))
            evidence = _evidence(node.node_id, EVIDENCE_KIND_TRANSFER, "was given a model before the rounds")
            evidence.delay_s, evidence.transfer_bytes = time.monotonic() - started_s, kept.size_bytes
            seen.append(evidence)
        await self._report(seen)
        return len(seen)

    async def ask(self, budget: int, seed: int) -> SelectionRound:
        """One round. Raises a PeerloomError when a service or a chosen node can't be reached."""
        job_id, started_s = f"round-{secrets.token_hex(6)}", time.monotonic()
        selector = await self._selector()
        request = SelectNodesRequest(
            requirements=Requirements(min_slots=0),
            request_budget=budget,
            policy=self._policy,
            excluded_nodes=[self._own_name],
            seed=seed,
        )
        chosen: SelectNodesResponse = await selector.call(selector.stub.SelectNodes, request)
        trainer = (await self._directory.trainer()).address  # nodes give nothing to any other
        given = await asyncio.gather(*(_reserve(node, job_id, trainer) for node in chosen.nodes))
        took_s = time.monotonic() - started_s
        await self._report([_outcome(n, slots) for n, slots in zip(chosen.nodes, given, strict=True)])
        named = {node.name: slots for node, slots in zip(chosen.nodes, given, strict=True) if slots}
        return SelectionRound(tuple(node.name for node in chosen.nodes), named, took_s)

    async def _report(self, evidence: Sequence[Evidence]) -> None:
        if evidence:
            selector = await self._selector()
            await selector.call(selector.stub.ReportEvidence, ReportEvidenceRequest(evidence=evidence))

    async def _selector(self) -> SelectorPeer:
        return await self._directory.selector()


async def _reserve(node: RankedNode, job_id: str, trainer_address: str) -> int:
    """The slots that the node gave; they are free again at the return."""
    request = RequestWorkRequest(
        job_id=job_id,
        max_slots=MOST_SLOTS,
        request_id=new_request_id(),
        work=Work(trainer_address=trainer_address, task=TASK),
    )
    async with Dialer().node_agent(node.address) as agent:
        slots: int = (await agent.call(agent.stub.RequestWork, request)).accepted_slots
        if slots:
            await agent.call(agent.stub.StopWorkers, StopWorkersRequest(job_id=job_id))
    return slots


def _outcome(node: RankedNode, slots: int) -> Evidence:
    if slots:
        detail = f"gave {slots} slots; stands for a training"
        return _evidence(node.node_id, EVIDENCE_KIND_TRAINING, detail, slots)
    return _evidence(node.node_id, EVIDENCE_KIND_UNFINISHED, "had no slots to give")


def _evidence(node_id: str, kind: "EvidenceKind.ValueType", detail: str, slots: int = 0) -> Evidence:
    now = Timestamp()
    now.GetCurrentTime()
    return Evidence(
        evidence_id=f"experiment-{secrets.token_hex(12)}",
        node_id=node_id,
        kind=kind,
        detail=detail,
        slots=slots,
        time=now,
    )
