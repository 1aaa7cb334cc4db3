"""`python -m benchmarks.accuracy.our_job {"settings": {...}, "curve": FILE}`: hands in the job, tells of it.

`settings` are those of `Client.train`. Runs inside the testbed; the job is cancelled when standard input
ends.
"""

import json
import sys
from typing import Any

from benchmarks.accuracy.curve_file import tell
from benchmarks.committed import cancelled_at_end_of_input, stamp_s
from peerloom.client.client import Client
from peerloom.client.types import EpochFinished, GenerationFormed, JobEvent, StateChanged


def main() -> None:
    asked = json.loads(sys.argv[1])
    with Client(patience_s=60) as client:
        job = client.train(**asked["settings"])
        with cancelled_at_end_of_input(job):
            for event in job.watch():
                if told := _told(event):
                    tell(asked["curve"], at_s=stamp_s(event), **told)


def _told(event: JobEvent) -> dict[str, Any] | None:
    match event:
        case GenerationFormed():
            workers = {worker.node_name: worker.id for worker in event.workers}
            return {"kind": "formed", "workers": workers}
        case EpochFinished():
            return {"kind": "accuracy", "epoch": event.epoch, "accuracy": event.metric}
        case StateChanged() if event.is_final:
            return {"kind": "ended", "text": str(event)}
        case _:
            return None


if __name__ == "__main__":
    main()
