"""The questions by which "auto" is judged: asked of it and by hand in all three ways, in turn."""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from peerloom import AsyncClient
from peerloom.client.types.inference import Mode
from peerloom.errors import PeerloomError

SIZES = (1, 64, 1024, 8192)
WAYS: tuple[Mode, ...] = ("remote", "split", "local")
WARM_UPS = 3
TURNS_OF_A_ROUND = 9
FAR_BEHIND, JUDGED_AFTER = 10, 5  # times the best way's median, after so many turns: it isn't asked any more


@dataclass(frozen=True)
class Questions:
    """One kind of question, several times.

    `by_hand_ms` are the milliseconds of each way that leads to an answer, `auto_ms` those of "auto", and
    `chosen` the ways that it took.
    """

    name: str
    by_hand_ms: dict[str, list[float]]
    auto_ms: list[float]
    chosen: list[str]


async def sweep(
    client: AsyncClient,
    digest: str,
    rounds: int,
    where: str = "loopback",
    sizes: Sequence[int] = SIZES,
    shape: Sequence[int] = (1, 8, 8),
) -> list[Questions]:
    """Questions of each size; each way, and "auto", begins a turn in its turn.

    A way that is far behind the best one after some turns isn't asked in the others: those wait for it.
    """
    found = []
    for size in sizes:
        inputs = np.random.default_rng(size).standard_normal((size, *shape), dtype=np.float32)
        ways = [way for way in WAYS if await _leads_to_an_answer(client, digest, inputs, way)]
        asked: list[Mode] = [*ways, "auto"]
        questions = Questions(f"{size:,} samples, {where}", {way: [] for way in ways}, [], [])
        for turn in range(max(3, rounds * TURNS_OF_A_ROUND)):
            near = [way for way in asked if not _is_far_behind(questions.by_hand_ms, way)]
            for way in (*near[turn % len(near) :], *near[: turn % len(near)]):
                started_s = time.perf_counter()
                answer = await client.infer(digest, inputs, way)
                taken_ms = (time.perf_counter() - started_s) * 1e3
                (questions.auto_ms if way == "auto" else questions.by_hand_ms[way]).append(taken_ms)
                if way == "auto":
                    questions.chosen.append(answer.mode)
        found.append(questions)
    return found


async def _leads_to_an_answer(
    client: AsyncClient, digest: str, inputs: npt.NDArray[np.float32], way: Mode
) -> bool:
    try:
        for _ in range(WARM_UPS):
            await client.infer(digest, inputs, way)
    except PeerloomError:
        return False
    return True


def _is_far_behind(by_hand_ms: Mapping[str, Sequence[float]], way: Mode) -> bool:
    taken_ms = {each: statistics.median(samples) for each, samples in by_hand_ms.items() if samples}
    is_judged = len(by_hand_ms.get(way, ())) >= JUDGED_AFTER
    return is_judged and taken_ms[way] > FAR_BEHIND * min(taken_ms.values())
