"""One job of the task "text", asked from inside its testbed or beside a system: how long its steps take.

`python -m benchmarks.tensor_job {"settings": {...}, "arguments": {...}, "warm_up": n}` prints `TextSteps` as
JSON: `settings` are those of `Client.train`, `arguments` the task's.
"""

import json
import sys
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.committed import committed_steps
from peerloom.client.client import Client


@dataclass(frozen=True)
class TextSteps:
    """Medians of a job's steps after the warm-up: all, what isn't computing, and what was predicted of that.

    0: nothing was predicted. In milliseconds.
    """

    step_ms: float
    communication_ms: float
    predicted_ms: float


def main() -> None:
    with Client() as client:
        print(json.dumps(asdict(text_steps(client, json.loads(sys.argv[1])))))


def text_steps(client: Client, asked: dict[str, Any]) -> TextSteps:
    """Trains, and tells of the steps."""
    job = client.train("text", epochs=1, arguments=asked["arguments"], backend="gloo", **asked["settings"])
    steps = committed_steps(job)[asked["warm_up"] :]
    stages = [worker.stage for worker in job.status().workers if worker.stage is not None]
    return TextSteps(
        1000 * median(step.step_s for step in steps),
        1000 * median(step.communication_s for step in steps),
        1000 * max((stage.exchange_s for stage in stages), default=0.0),
    )


if __name__ == "__main__":
    main()
