"""One job of the task "emulated", asked from inside its testbed or beside a system: the milliseconds a batch.

`python -m benchmarks.emulated_job {"settings": {...}, "arguments": {...}, "warm_up": n}` prints them:
`settings` are those of `Client.train`, `arguments` the task's. The clock is the trainer's, from the end of
the warm-up, counted in steps, to the last commit.
"""

import json
import sys
from collections.abc import Sequence
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

    A job whose steps take more than `at_most_ms` is cancelled (`too_slow`), and counts by those it has made.
    """
    settings = asked["settings"]
    warm_up: int = asked["warm_up"]
    job = client.train("emulated", epochs=1, arguments=asked["arguments"], backend="gloo", **settings)
    committed = committed_steps(job, enough=lambda steps: too_slow(steps[warm_up - 1 :], at_most_ms))
    batches: float = sum(one.samples for one in committed[warm_up:]) / settings["batch_size"]
    return _taken_ms(committed[warm_up - 1 :]) / batches


def too_slow(steps: Sequence[StepCommitted], at_most_ms: float) -> bool:
    """Whether steps, from the warm-up's last on, take more than that each.

    That is judged of JUDGED of them, or as soon as fewer have taken as long as so many may.
    """
    return len(steps) > 1 and _taken_ms(steps) > at_most_ms * max(len(steps) - 1, JUDGED)


def _taken_ms(steps: Sequence[StepCommitted]) -> float:
    return 1000 * seconds_between(steps[0], steps[-1])


if __name__ == "__main__":
    main()
