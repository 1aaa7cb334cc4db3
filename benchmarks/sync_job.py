"""One job of the benchmark `sync`, asked from inside its testbed: prints the milliseconds a batch.

`python -m benchmarks.sync_job {"sync": METHOD, "workers": n, "warm_up": n, "task": {...}}`. The clock is the
trainer's, from the end of the warm-up to the last commit.
"""

import json
import sys

from benchmarks.committed import committed_steps, seconds_between
from peerloom.client.client import Client


def main() -> None:
    asked = json.loads(sys.argv[1])
    workers = asked["workers"]
    with Client() as client:
        job = client.train(
            "emulated",
            requests=workers,
            min_workers=workers,
            max_workers=workers,
            batch_size=workers,
            epochs=1,
            arguments=asked["task"],
            sync=asked["sync"],
            backend="gloo",
            equal_shares=True,
        )
        committed = committed_steps(job)
    batches = sum(one.samples for one in committed[asked["warm_up"] :]) / workers
    print(1000 * seconds_between(committed[asked["warm_up"] - 1], committed[-1]) / batches)


if __name__ == "__main__":
    main()
