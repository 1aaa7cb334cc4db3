"""Many clients in one process: `python -m benchmarks.callers_crowd JSON`, with the fields of `Calling`.

Prints "ready" once all is imported. After a line on standard input each client, which has connections and
figures of its own, connects and asks its questions one after the other; then what became of each is printed
as JSON: a `Said`. The process finds its system by PEERLOOM_ADDRESS.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from peerloom import AsyncClient
from peerloom.client.types.inference import Mode
from peerloom.errors import PeerloomError, ResourceExhaustedError
from peerloom.kit.logs import configure_logs
from peerloom.kit.server_limits import raise_descriptor_limit


@dataclass(frozen=True)
class Calling:
    """So many `clients` that ask the model `digest` by `mode`, each `questions` times a sample of `shape`."""

    digest: str
    clients: int
    questions: int
    timeout_s: float
    shape: Sequence[int]
    expected: Sequence[float]
    mode: Mode = "auto"


@dataclass
class Said:
    """What became of all questions of a process.

    Of answers the seconds that each took, how many came which way, and how many were `wrong`; of the others
    how many were `shed`, which a node refused and told when to come again, and what else was said how often.
    """

    seconds: list[float] = field(default_factory=list)
    ways: Counter[str] = field(default_factory=Counter)
    wrong: int = 0
    shed: int = 0
    errors: Counter[str] = field(default_factory=Counter)


async def main(calling: Calling) -> Said:
    """All clients at once."""
    said = Said()
    await asyncio.gather(*(_ask_all(calling, said) for _ in range(calling.clients)))
    return said


async def _ask_all(calling: Calling, said: Said) -> None:
    inputs = np.ones((1, *calling.shape), dtype=np.float32)
    async with AsyncClient() as client:
        for _ in range(calling.questions):
            await _ask(client, calling, inputs, said)


async def _ask(client: AsyncClient, calling: Calling, inputs: "np.ndarray", said: Said) -> None:
    began_s = time.perf_counter()
    try:
        answer = await client.infer(calling.digest, inputs, calling.mode, timeout_s=calling.timeout_s)
    except ResourceExhaustedError as error:
        hinted = "retry_after_s" in error.metadata
        said.shed += hinted
        if not hinted:
            said.errors[f"without a hint: {error.message[:200]}"] += 1
    except PeerloomError as error:
        said.errors[f"{type(error).__name__}: {error.message[:200]}"] += 1
    else:
        said.seconds.append(time.perf_counter() - began_s)
        said.ways[answer.mode] += 1
        said.wrong += not np.allclose(answer.outputs[0], calling.expected, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    raise_descriptor_limit()
    configure_logs("callers", "error")
    asked = Calling(**json.loads(sys.argv[1]))
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(vars(asyncio.run(main(asked)))), flush=True)
