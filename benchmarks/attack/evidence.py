"""How far a node's word moves the belief in another node."""

import asyncio
import time

from benchmarks.attack.attacks import attack
from benchmarks.attack.outcomes import OUT_OF_LIMITS, By, Gain, Held, Outcome, Refusal, refused
from benchmarks.attack.system import System
from peerloom.errors import NotFoundError
from peerloom.kit.clock import to_timestamp
from peerloom.kit.ids import new_request_id
from peerloom.kit.limits import LIE_PRICE, MAX_DELAY_S
from peerloom.v1.selector_pb2 import Evidence, EvidenceKind, ReportEvidenceRequest, ReportEvidenceResponse

MINUTE_S, KNOWN_S = 60.0, 30.0
HONEST = 60  # trainings that make a belief which can fall by a minute
TIME_SCORE = 5.0  # far more than some seconds online are worth; without a limit it would cost 86,400
NO_TRAINER = Refusal("PERMISSION_DENIED", "ROLE_MAY_NOT", "can't prove a lie")
ALLOWANCE = 120  # one reporter's facts about a node at once


def _transfer(node_id: str, delay_s: float) -> Evidence:
    kind = EvidenceKind.EVIDENCE_KIND_TRANSFER
    return _fact(node_id, kind, delay_s=delay_s)


def _fact(node_id: str, kind: EvidenceKind.ValueType, **fields: float) -> Evidence:
    moment = to_timestamp(time.time())
    return Evidence(evidence_id=new_request_id(), node_id=node_id, kind=kind, time=moment, **fields)  # type: ignore[arg-type]  # fields by name


async def _report(system: System, owner: str, *facts: Evidence) -> ReportEvidenceResponse:
    dialer = await system.dialer("node", owner)
    async with dialer.selector(system.addresses["selector"]) as selector:
        return await selector.call(selector.stub.ReportEvidence, ReportEvidenceRequest(evidence=facts))


async def _belief(system: System, node_id: str) -> float:
    """Waits until the selector knows the node, which it hears of by the registry's events."""
    async with asyncio.timeout(KNOWN_S), system.client() as client:
        while True:
            try:
                return (await client.belief(node_id)).belief
            except NotFoundError:
                await asyncio.sleep(0.1)


async def _trusted_node(system: System) -> str:
    node_id = (await system.victim()).session.node_id
    await _belief(system, node_id)
    training = EvidenceKind.EVIDENCE_KIND_TRAINING
    await _report(system, "bob", *[_fact(node_id, training) for _ in range(HONEST)])
    return node_id


@attack(By.NODE, "reports a transfer that took 1e9 s", "physical limits hold in a plain system too")
async def tell_of_an_impossible_delay(system: System) -> Outcome:
    """Hopes to end the trust in a rival by one message."""
    node_id = await _trusted_node(system)
    before = await _belief(system, node_id)
    outcome = await refused(
        _report(system, "eve", _transfer(node_id, 1e9)), OUT_OF_LIMITS, gain="it is counted"
    )
    moved = before - await _belief(system, node_id)
    return Gain(f"the belief fell by {moved:.1f}") if moved else outcome


@attack(By.NODE, "reports the longest delay that is taken, a day", "a minute counts in a plain system too")
async def tell_of_a_days_delay(system: System) -> Outcome:
    """Hopes the same of a lie that could be true; beside it a node with the same past is told of honestly."""
    slandered, other = await _trusted_node(system), await _trusted_node(system)
    await _report(system, "eve", _transfer(slandered, MAX_DELAY_S))
    await _report(system, "eve", _transfer(other, 0.0))
    cost = await _belief(system, other) - await _belief(system, slandered)
    if cost > MINUTE_S + TIME_SCORE:
        return Gain(f"the lie cost {cost:.1f}, more than a minute")
    return Held(f"the lie cost {cost:.1f}, and a minute, 60, is promised at most")


@attack(By.NODE, "reports 1,000 unfinished works of another at once", "the allowance holds there too")
async def flood_with_evidence(system: System) -> Outcome:
    """Hopes that many small lies do what one big one can't."""
    node_id = await _trusted_node(system)
    unfinished = EvidenceKind.EVIDENCE_KIND_UNFINISHED
    answer = await _report(system, "eve", *[_fact(node_id, unfinished) for _ in range(1000)])
    if answer.applied > ALLOWANCE:
        return Gain(f"{answer.applied} facts about one node counted")
    return Held(f"{answer.applied} of 1,000 facts counted, an hour's half")


@attack(By.NODE, "tells that another node lied, and answered wrongly")
async def call_a_liar(system: System) -> Outcome:
    """Hopes that nobody is given the rival any more: a proven lie costs more than can be earned."""
    node_id = await _trusted_node(system)
    lie, wrong = EvidenceKind.EVIDENCE_KIND_LIE, EvidenceKind.EVIDENCE_KIND_WRONG_ANSWER
    outcome = await refused(
        _report(system, "eve", _fact(node_id, lie)), NO_TRAINER, gain="its word proves a lie"
    )
    await _report(system, "eve", *[_fact(node_id, wrong) for _ in range(1000)])
    if await _belief(system, node_id) <= -LIE_PRICE:
        return Gain("nobody is given the node any more")
    return outcome
