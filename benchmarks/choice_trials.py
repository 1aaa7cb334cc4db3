"""A job of the task "emulated" with `--sync auto`, asked from inside its testbed: what was chosen.

`python -m benchmarks.choice_job {"settings": {...}, "arguments": {...}, "look_s": s}` lets it run for so many
seconds from its first step, cancels it, and prints the method in use, what was predicted for it, and why.
"""

import json
import sys
from typing import Any

from benchmarks.committed import stamp_s
from peerloom.client.client import Client
from peerloom.client.types import StepCommitted, SyncInUse


def main() -> None:
    with Client() as client:
        chosen = chosen_by(client, json.loads(sys.argv[1]))
    predicted_ms = 1000 * chosen.predicted.step_s if chosen.predicted else None
    print(json.dumps({"method": chosen.method, "predicted_ms": predicted_ms, "reason": chosen.reason}))


def chosen_by(client: Client, asked: dict[str, Any]) -> SyncInUse:
    """What the job uses when its time is over, or its steps."""
    settings = {**asked["settings"], "sync": "auto"}
    job = client.train("emulated", epochs=1, arguments=asked["arguments"], backend="gloo", **settings)
    began_s: float | None = None
    for event in job.watch():
        now_s = stamp_s(event)
        if began_s is None and isinstance(event, StepCommitted):
            began_s = now_s
        if began_s is not None and now_s - began_s > asked["look_s"]:
            break
    found = job.status()
    if not found.ended:
        job.cancel()
    assert found.sync is not None, "a job with auto says what it uses"
    return found.sync


if __name__ == "__main__":
    main()
