"""Asks a system, over and over, as a user's program: `python -m benchmarks.soak.asking`, until it is ended.

A line of standard input is the id of a job whose model is asked from then on. Each answer, and each failure,
is a line of JSON: what was asked, how many seconds that took, and of a model what it answered. A model is
asked twice: by the way that is fastest, which may be this process itself, and by a node.
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import numpy as np

from peerloom import AsyncClient
from peerloom.errors import PeerloomError

PAUSE_S = 0.5
PATIENCE_S = 20.0
LISTED = 10  # jobs: a list of all takes the longer the more there were


async def main() -> None:
    """Each service in turn, then the model."""
    newest: list[str] = []
    threading.Thread(target=_read_into, args=(newest,), daemon=True).start()
    image = np.random.default_rng(7).integers(0, 17, (1, 1, 8, 8)).astype(np.float32)  # as digits are
    async with AsyncClient(patience_s=PATIENCE_S) as client:
        while True:
            await _timed("registry", client.nodes)
            await _timed("selector", client.beliefs)
            await _timed("trainer", partial(client.jobs, limit=LISTED))
            if newest:
                model = newest[-1]
                await _timed("inference", partial(client.infer, model, image), model)
                await _timed("inference by a node", partial(client.infer, model, image, "remote"), model)
            await asyncio.sleep(PAUSE_S)


def _read_into(newest: list[str]) -> None:
    for line in sys.stdin:
        newest.append(line.strip())


async def _timed(what: str, ask: Callable[[], Awaitable[Any]], model: str = "") -> None:
    began_s = time.monotonic()
    told: dict[str, Any] = {"what": what, "model": model}
    try:
        answer = await ask()
        if model:
            told["answer"] = np.asarray(answer.outputs).round(3).tolist()
    except PeerloomError as error:
        told["failed"] = f"{type(error).__name__}: {error.message}"
    told["took_s"] = time.monotonic() - began_s
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
