"""Whether "auto" takes the way that is fastest: all three by hand beside it, over sizes of input."""

import time
from collections.abc import Sequence

import numpy as np

from benchmarks.measure import Goal, Measurement, measurement
from peerloom import AsyncClient
from peerloom.client.types.inference import Mode

SIZES = (1, 64, 1024, 8192)
WAYS: tuple[Mode, ...] = ("remote", "split", "local")
WARM_UPS = 3


async def sweep(
    client: AsyncClient,
    digest: str,
    rounds: int,
    network: str = "loopback",
    sizes: Sequence[int] = SIZES,
) -> list[Measurement]:
    """For each size the time of "auto" over that of the best way, in turn."""
    found = []
    for size in sizes:
        inputs = np.random.default_rng(size).standard_normal((size, 1, 8, 8), dtype=np.float32)
        for _ in range(WARM_UPS):
            for way in WAYS:
                await client.infer(digest, inputs, way)
        taken_s: dict[str, list[float]] = {way: [] for way in (*WAYS, "auto")}
        for _ in range(max(3, rounds * 3)):
            for way in (*WAYS, "auto"):
                started_s = time.perf_counter()
                await client.infer(digest, inputs, way)  # type: ignore[arg-type]  # one of the ways
                taken_s[way].append((time.perf_counter() - started_s) * 1e3)
        best = min(WAYS, key=lambda way: sorted(taken_s[way])[len(taken_s[way]) // 2])
        one = measurement(
            f"auto, {size:,} samples, {network}",
            "ms",
            taken_s["auto"],
            goal=Goal(1.1, at_least=False, of_ratio=True),
            rival=f"the best way by hand, {best}",
            rival_samples=taken_s[best],
        )
        found.append(one)
    return found
