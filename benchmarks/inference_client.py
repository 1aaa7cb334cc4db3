"""`python -m benchmarks.inference_client JSON`: one client's questions, which it prints as JSON.

The argument holds the fields of `Asking`. The client finds its system by PEERLOOM_ADDRESS, or by the testbed
that it runs in.
"""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.core_shares import join
from benchmarks.inference_sweep import Questions, sweep
from peerloom import AsyncClient


@dataclass(frozen=True)
class Asking:
    """A model's file, of which `copies` are made, and the questions; see `sweep`.

    With a `group` the client moves into this cgroup once all is imported.
    """

    model: str
    copies: int
    rounds: int
    where: str
    sizes: Sequence[int]
    shape: Sequence[int]
    group: str = ""

    @property
    def command(self) -> list[str]:
        """What runs the client."""
        return [sys.executable, "-m", "benchmarks.inference_client", json.dumps(asdict(self))]


def told(printed: bytes) -> list[Questions]:
    """What the client printed."""
    return [Questions(**one) for one in json.loads(printed)]


async def main(asking: Asking) -> None:
    """Asks, and prints."""
    import torch  # noqa: F401  # before the client becomes slow, as it takes seconds

    async with AsyncClient() as client:
        kept = await client.artifacts.put(Path(asking.model), kind="model", copies=asking.copies)
        if asking.group:
            join(Path(asking.group), os.getpid())
        found = await sweep(client, kept.digest, asking.rounds, asking.where, asking.sizes, asking.shape)
    print(json.dumps([asdict(one) for one in found]))


if __name__ == "__main__":
    asyncio.run(main(Asking(**json.loads(sys.argv[1]))))
