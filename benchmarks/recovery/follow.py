"""`python -m benchmarks.recovery.follow TASK BACKEND [SYNC]`: hands in the job, tells its events as JSON.

A process of its own, because on a testbed only those inside the emulated network reach the trainer. The
job is cancelled when standard input ends.
"""

import json
import os
import sys
from typing import cast

from benchmarks.committed import cancelled_at_end_of_input, stamp_s
from benchmarks.recovery.small_model import WORKERS
from peerloom.client.client import Client
from peerloom.client.types import GenerationFormed, JobEvent, StateChanged, StepCommitted
from peerloom.client.types.job_specs import Backend

TASKS = "benchmarks.recovery.small_task"


def main() -> None:
    with Client(os.environ["PEERLOOM_ADDRESS"], patience_s=60) as client:
        task, backend, sync = f"{TASKS}:{sys.argv[1]}", cast("Backend", sys.argv[2]), "".join(sys.argv[3:])
        job = client.train(task, requests=WORKERS, max_workers=WORKERS, backend=backend, sync=sync)
        with cancelled_at_end_of_input(job):
            for event in job.watch():
                told = tell(event)
                if told:
                    print(json.dumps(told), flush=True)


def tell(event: JobEvent) -> dict[str, object]:
    """What the benchmark wants to know of an event; nothing of most."""
    told: dict[str, object] = {"at_s": stamp_s(event), "kind": type(event).__name__}
    match event:
        case GenerationFormed():
            workers = [[worker.id, worker.node_name] for worker in event.workers]
            told |= {"generation": event.generation, "step": event.first_step}
            return {**told, "workers": workers}
        case StepCommitted():
            told |= {"generation": event.generation, "step": event.step}
            return {**told, "step_s": event.step_s}
        case StateChanged():
            return {**told, "text": str(event), "final": event.is_final}
        case _:
            return {**told, "text": str(event)}


if __name__ == "__main__":
    main()
