"""One job of the task "emulated", asked from inside its testbed or beside a system: the milliseconds a batch.

`python -m benchmarks.emulated_job {"settings": {...}, "arguments": {...}, "warm_up": n}` prints them:
`settings` are those of `Client.train`, `arguments` the task's. The clock is the trainer's, from the end of
the warm-up, counted in steps, to the last commit.
"""

import json
import sys
from typing import Any

from benchmarks.committed import committed_steps, seconds_between
from peerloom.client.client import Client


def main() -> None:
    with Client() as client:
        print(job_ms(client, json.loads(sys.argv[1])))


def job_ms(client: Client, asked: dict[str, Any]) -> float:
    """Trains, and gives the milliseconds a batch of the size that was asked for."""
    settings, warm_up = asked["settings"], asked["warm_up"]
    job = client.train("emulated", epochs=1, arguments=asked["arguments"], backend="gloo", **settings)
    committed = committed_steps(job)
    batches: float = sum(one.samples for one in committed[warm_up:]) / settings["batch_size"]
    return 1000 * seconds_between(committed[warm_up - 1], committed[-1]) / batches


if __name__ == "__main__":
    main()
