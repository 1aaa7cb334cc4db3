"""What a client does about second opinions: whom it asks, what it tells of whom, and whom it asks no more."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from peerloom.errors import UnavailableError
from peerloom.inference.client.remote import RemoteAnswer
from peerloom.inference.client.replica import ReplicaNode
from peerloom.inference.client.second_opinions import CheckedAnswer, Opinion, SecondOpinions

TRUE = np.array([[0.0, 1.0, 10.0]], np.float32)
LIE = TRUE[:, ::-1].copy()
INPUTS = np.zeros((1, 4), np.float32)


@dataclass
class Holder:
    """A node that holds the model and gives this answer; None: it is away."""

    node: ReplicaNode
    outputs: np.ndarray | None


@dataclass
class World:
    """The nodes beside the one that answered first, and what was told and done about them."""

    holders: list[Holder]
    own: np.ndarray | None = None  # what this machine would compute
    told: list[tuple[str, str, str]] = field(default_factory=list)
    distrusted: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    async def holding(self, digest: str) -> list[Holder]:
        return [one for one in self.holders if one.node.name not in self.distrusted]

    async def make_ready(self, replica: Holder, digest: str) -> None:
        return None

    def distrust(self, node: ReplicaNode) -> None:
        self.distrusted.append(node.name)

    def answered_wrongly(self, node_id: str, detail: str) -> None:
        self.told.append(("wrong", node_id, detail))

    def unfinished(self, node_id: str, detail: str) -> None:
        self.told.append(("unfinished", node_id, detail))

    def why_not(self) -> str:
        return "" if self.own is not None else "no torch"

    async def infer(self, digest: str, inputs: np.ndarray) -> tuple[np.ndarray, float]:
        assert self.own is not None
        return self.own, 0.0

    async def ask(self, replica: Holder, digest: str, inputs: np.ndarray, timeout_s: float) -> RemoteAnswer:
        self.asked.append(replica.node.name)
        if replica.outputs is None:
            raise UnavailableError("away")
        return RemoteAnswer(replica.outputs, (replica.node,), 0.0, 0.0, False)

    def opinions(self, seed: int = 1) -> SecondOpinions:
        own: Any = self
        return SecondOpinions(own, own, own, self.ask, random.Random(seed))  # type: ignore[arg-type]  # replicas in short


def node(name: str, owner: str = "") -> ReplicaNode:
    return ReplicaNode(f"node-{name}", name, "10.0.0.1:1", 0.0, 1.0, owner or f"owner {name}")


def answer(outputs: np.ndarray, *nodes: ReplicaNode) -> CheckedAnswer:
    return CheckedAnswer("digest", INPUTS, outputs, nodes)


def seen(opinion: Opinion) -> tuple[list[float], tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    return opinion.outputs[0].tolist(), opinion.nodes, opinion.confirmed_by, opinion.deviating


async def test_who_is_confirmed_is_checked_more_seldom() -> None:
    """After nine agreements one answer in ten is due; a node that was never checked always is."""
    world = World([Holder(node("b"), TRUE)])
    opinions, first = world.opinions(), node("a")
    for _ in range(9):
        opinion = await opinions.check(answer(TRUE, first), 60.0)
        assert seen(opinion) == (TRUE[0].tolist(), ("a",), ("b",), ())
    due = sum(opinions.is_due([first]) for _ in range(2000))
    assert 140 < due < 260
    assert all(opinions.is_due([node("new")]) for _ in range(20))
    assert all(opinions.is_due([first, node("new")]) for _ in range(20)), "the least known stage decides"
    assert world.told == []


async def test_only_nodes_of_other_owners_are_asked_each_owner_once() -> None:
    """Ann's two nodes agree with each other, whatever they say: neither confirms the other."""
    world = World(
        [Holder(node("a2", "ann"), LIE), Holder(node("b"), TRUE), Holder(node("b2", "owner b"), TRUE)]
    )
    await world.opinions().check(answer(LIE, node("a", "ann")), 60.0)
    assert "a2" not in world.asked
    assert len(world.asked) == 1, "bob's second node isn't a third voice"


async def test_a_liar_is_outvoted_told_of_and_asked_no_more() -> None:
    world = World([Holder(node("b"), TRUE), Holder(node("c"), TRUE)])
    opinion = await world.opinions().check(answer(LIE, node("a")), 60.0)
    (kind, who, detail), *more = world.told
    assert (kind, who, more, world.distrusted) == ("wrong", "node-a", [], ["a"])
    assert "b" in detail.split("than ")[1]
    assert "c" in detail.split("than ")[1]
    assert opinion.outputs.tolist() == TRUE.tolist()
    assert {*opinion.nodes, *opinion.confirmed_by} == {"b", "c"}
    assert opinion.deviating == ("a",)


async def test_a_second_one_that_lies_is_found_too() -> None:
    world = World([Holder(node("b"), LIE), Holder(node("c"), TRUE)])
    opinions = world.opinions(seed=3)
    opinion = await opinions.check(answer(TRUE, node("a")), 60.0)
    while not world.distrusted:  # until chance asks b
        opinion = await opinions.check(answer(TRUE, node("a")), 60.0)
    assert seen(opinion) == (TRUE[0].tolist(), ("a",), ("c",), ("b",))
    assert [(kind, who) for kind, who, _ in world.told] == [("wrong", "node-b")]


async def test_without_a_third_this_machine_decides() -> None:
    world = World([Holder(node("b"), TRUE)], own=TRUE)
    opinion = await world.opinions().check(answer(LIE, node("a")), 60.0)
    assert seen(opinion) == (TRUE[0].tolist(), ("b",), ("here",), ("a",))
    assert world.distrusted == ["a"]


async def test_without_anybody_to_decide_both_are_doubted_and_neither_is_called_a_liar() -> None:
    world = World([Holder(node("b"), TRUE)])
    opinions = world.opinions()
    opinion = await opinions.check(answer(LIE, node("a")), 60.0)
    assert seen(opinion) == (LIE[0].tolist(), ("a",), (), ("a", "b"))
    assert [(kind, who) for kind, who, _ in world.told] == [
        ("unfinished", "node-a"),
        ("unfinished", "node-b"),
    ]
    assert world.distrusted == []
    assert all(opinions.is_due([node("a")]) for _ in range(20)), "who is doubted is checked again"


async def test_of_a_split_model_no_stage_is_called_a_liar() -> None:
    world = World([Holder(node("c"), TRUE), Holder(node("d"), TRUE)])
    opinion = await world.opinions().check(answer(LIE, node("a"), node("b")), 60.0)
    assert opinion.outputs.tolist() == TRUE.tolist()
    assert [(kind, who) for kind, who, _ in world.told] == [
        ("unfinished", "node-a"),
        ("unfinished", "node-b"),
    ]
    assert world.distrusted == []
    assert opinion.deviating == ("a", "b")


async def test_who_is_away_says_nothing_and_nobody_waits_for_what_never_comes() -> None:
    world = World([Holder(node(name), None) for name in "bcdef"])
    assert seen(await world.opinions().check(answer(TRUE, node("a")), 60.0)) == (
        TRUE[0].tolist(),
        ("a",),
        (),
        (),
    )
    assert len(world.asked) == 3
    silent = World([Holder(node("b"), TRUE)])

    async def never(*_: object) -> RemoteAnswer:
        await asyncio.Event().wait()
        raise AssertionError

    silent.ask = never  # type: ignore[method-assign]
    assert (await silent.opinions().check(answer(TRUE, node("a")), 0.01)).confirmed_by == ()


async def test_in_the_background_what_the_caller_does_with_its_arrays_changes_nothing() -> None:
    world = World([Holder(node("b"), TRUE), Holder(node("c"), TRUE)])
    opinions, outputs = world.opinions(), TRUE.copy()
    for _ in range(9):
        opinions.check_later(answer(outputs, node("a")))
    outputs *= -1
    await opinions.close()
    assert len(world.asked) == 2, "two at once, and what is due beyond them isn't asked"
    assert (world.told, world.distrusted) == ([], [])
