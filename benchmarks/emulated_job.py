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
from peerloom.client.types import StepCommitted

JUDGED = 3  # steps after the warm-up


def main() -> None:
    with Client() as client:
        print(job_ms(client, json.loads(sys.argv[1])))


def job_ms(client: Client, asked: dict[str, Any], at_most_ms: float = float("inf")) -> float:
    """Trains, and gives the milliseconds a batch of the size that was asked for.

    A job whose steps take more than `at_most_ms` is cancelled after JUDGED of them, or when it has taken as
    long as those may, and counts by what it has made.
    """
    settings = asked["settings"]
    warm_up: int = asked["warm_up"]

    def taken_ms(steps: list[StepCommitted]) -> float:
        return 1000 * seconds_between(steps[warm_up - 1], steps[-1])

    def too_slow(steps: list[StepCommitted]) -> bool:
        made = len(steps) - warm_up
        return made > 0 and taken_ms(steps) > at_most_ms * max(made, JUDGED)

    job = client.train("emulated", epochs=1, arguments=asked["arguments"], backend="gloo", **settings)
    committed = committed_steps(job, enough=too_slow)
    batches: float = sum(one.samples for one in committed[warm_up:]) / settings["batch_size"]
    return taken_ms(committed) / batches


if __name__ == "__main__":
    main()
