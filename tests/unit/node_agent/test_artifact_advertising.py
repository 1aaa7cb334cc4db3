"""Telling of artifacts with a scripted registry: all at first, then changes, and again what it forgot."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agent_parts import LIMIT_S, ScriptedRegistry

from peerloom.errors import UnavailableError
from peerloom.services.node_agent.membership.advertising import Advertiser, PendingChanges

A, B = "aa" * 32, "bb" * 32


class Bench:
    """An advertiser at work, whose registry takes what it is told unless `is_away`."""

    def __init__(self) -> None:
        self.is_away, self.is_asked = False, asyncio.Event()
        self.digests: tuple[str, ...] = (A,)
        self.registry = ScriptedRegistry(lambda method, request: self._answer())
        self.pending = PendingChanges()
        peer: Any = self.registry
        self.advertiser = Advertiser(peer, lambda: self.digests, self.pending)

    def _answer(self) -> UnavailableError | None:
        self.is_asked.set()
        return UnavailableError("away") if self.is_away else None

    @property
    def told(self) -> list[tuple[int, int, list[str], list[str]]]:
        """Version, base version, added and removed of each request."""
        return [
            (
                request.version,
                request.base_version,
                [digest.hex() for digest in request.added],
                [digest.hex() for digest in request.removed],
            )
            for _, request in self.registry.requests
        ]

    async def settle(self) -> None:
        """Notes a change and waits until it was told."""
        self.pending.note()
        async with asyncio.timeout(LIMIT_S):
            await self.pending.settle()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    keeping = asyncio.create_task(made.advertiser.keep())
    made.advertiser.hear("lease-1", 0)
    yield made
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


async def test_all_is_told_at_first_and_then_changes_only(bench: Bench) -> None:
    await bench.settle()
    bench.digests = (A, B)
    await bench.settle()
    bench.digests = (B,)
    await bench.settle()
    await bench.settle()
    assert bench.told == [(1, 0, [A], []), (2, 1, [B], []), (3, 2, [], [A])]
    assert bench.advertiser.version == 3


async def test_a_registry_that_forgot_is_told_all_after_its_second_word(bench: Bench) -> None:
    """The first word may have been under way while more was told."""
    await bench.settle()
    bench.advertiser.hear("lease-1", 0)
    await bench.settle()
    assert len(bench.told) == 1
    bench.advertiser.hear("lease-1", 0)
    await bench.settle()
    assert bench.told[1] == (1, 0, [A], [])


async def test_nobody_waits_for_a_registry_that_is_away_and_it_hears_of_it_later(bench: Bench) -> None:
    await bench.settle()
    bench.is_away = True
    bench.digests = (A, B)
    await bench.settle()
    assert len(bench.told) == 2
    await bench.settle()  # returns at once, though nothing is told
    bench.is_away = False
    bench.is_asked.clear()
    for _ in range(2):
        bench.advertiser.hear("lease-1", 1)
    async with asyncio.timeout(LIMIT_S):
        await bench.is_asked.wait()
    assert bench.told[-1] == (2, 1, [B], [])


async def test_without_a_lease_nothing_is_told_and_nobody_waits() -> None:
    made = Bench()
    await made.settle()
    assert made.told == []
