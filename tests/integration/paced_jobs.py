"""Jobs at a pace that leaves the cores to others, and waits for their epochs."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from peerloom import Client, EpochFinished, JobEvent, JobHandle

_TASK = """
import threading
from peerloom.worker.tasks.digits import Digits
class Paced(Digits):
    def batch(self, split, indices):
        threading.Event().wait(%r)
        return super().batch(split, indices)
"""


def begin_patient_job(client: Client, workers: int) -> JobHandle:
    """A job of so many workers that goes on until it is cancelled, and leaves the processors to others."""
    arguments = {"samples": "1500", "sample_ms": "0", "step_ms": "20", "parameters": "1000"}
    return client.train(
        "emulated", requests=workers, max_workers=workers, epochs=100_000, arguments=arguments
    )


def put_paced_task(folder: Path, pause_s: float) -> None:
    """Puts `paced:Paced` there, which waits so long before each batch."""
    (folder / "paced.py").write_text(_TASK % pause_s)


def let_nodes_import_paced_task(patch: pytest.MonkeyPatch, folder: Path, pause_s: float) -> None:
    """The same, for all nodes that are started while the patch lasts."""
    put_paced_task(folder, pause_s)
    patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)


async def next_epoch(events: AsyncIterator[JobEvent]) -> None:
    """Waits for the end of the epoch that is under way."""
    async for event in events:
        if isinstance(event, EpochFinished):
            return
    raise AssertionError("the job ended")
