"""Whether "auto" takes the way that is fastest: all three by hand beside it, over sizes of input."""

import statistics
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np

from benchmarks.measure import Goal, Measurement, measurement
from peerloom import AsyncClient
from peerloom.client.types.inference import Mode

SIZES = (1, 64, 1024, 8192)
WAYS: tuple[Mode, ...] = ("remote", "split", "local")
ORDER: tuple[Mode, ...] = (*WAYS, "auto")
WARM_UPS = 3


async def sweep(
    client: AsyncClient,
    digest: str,
    rounds: int,
    network: str = "loopback",
    sizes: Sequence[int] = SIZES,
) -> list[Measurement]:
    """For each size the time of "auto" over that of the best way; each of them begins a round in turn."""
    found = []
    for size in sizes:
        inputs = np.random.default_rng(size).standard_normal((size, 1, 8, 8), dtype=np.float32)
        for _ in range(WARM_UPS):
            for way in WAYS:
                await client.infer(digest, inputs, way)
        taken_ms: dict[Mode, list[float]] = {way: [] for way in ORDER}
        chosen: Counter[str] = Counter()
        for turn in range(max(3, rounds * 3)):
            for way in (*ORDER[turn % len(ORDER) :], *ORDER[: turn % len(ORDER)]):
                started_s = time.perf_counter()
                answer = await client.infer(digest, inputs, way)
                taken_ms[way].append((time.perf_counter() - started_s) * 1e3)
                chosen[answer.mode] += way == "auto"
        best = min(WAYS, key=lambda way: statistics.median(taken_ms[way]))
        took = ", ".join(f"{way} {times} times" for way, times in chosen.items() if times)
        one = measurement(
            f"auto, {size:,} samples, {network}",
            "ms",
            taken_ms["auto"],
            goal=Goal(1.1, at_least=False, of_ratio=True),
            rival=f"the best way by hand, {best}; auto took {took}",
            rival_samples=taken_ms[best],
        )
        found.append(one)
    return found
