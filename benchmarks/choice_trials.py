"""All that is measured in a cell of `choice`, asked from inside its testbed.

`python -m benchmarks.choice_trials {"cell": TITLE}` runs the ways that differ there as jobs of the task
"emulated", one after the other, and then a job by `--sync auto`: it prints milliseconds a step, which method
auto used when it was looked at, and what it had predicted for that one.

Of so many times the least is partly luck. So where others come close to auto's way these run again with it,
in turn, and those times alone are compared.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from benchmarks.choice_cells import CELLS, ChoiceCell, ways_of
from benchmarks.committed import stamp_s
from benchmarks.emulated_job import job_ms
from peerloom.client.client import Client
from peerloom.client.types import StepCommitted, SyncInUse
from peerloom.kit.sync_grammar import parse_sync

LOOK_S = 36.0  # a second change may follow the first after 30 s
TARGET_MS, LEAST_COMMITS, MOST_COMMITS, WARM_UP = 2000, 6, 80, 2
MOST_STEPS = 4000
RIVALS, CLOSE, AGAIN = 2, 1.15, 3
Times = dict[str, list[float]]


@dataclass
class Trials:
    """What auto chose and predicted; milliseconds a step by method, each once, and of some `again`."""

    method: str
    predicted_ms: float | None
    times: Times
    again: Times = field(default_factory=dict)


def main() -> None:
    asked = json.loads(sys.argv[1])
    [cell] = [one for one in CELLS if one.title == asked["cell"]]
    with Client() as client:
        print(json.dumps(asdict(measured(client, cell))))


def measured(client: Client, cell: ChoiceCell) -> Trials:
    """Each way once, then auto's job, its way if it is another one, and what comes close to that again."""
    times: Times = {str(parse_sync("sync", way)): [_step_ms(client, cell, way)] for way in ways_of(cell)}
    used = _chosen_by(client, cell)
    if used.method not in times:
        times[used.method] = [_step_ms(client, cell, used.method)]
    predicted_ms = 1000 * used.predicted.step_s if used.predicted else None
    found = Trials(used.method, predicted_ms, times)
    contenders = close_to(used.method, times)
    for _ in range(AGAIN if contenders else 0):
        for method in (used.method, *contenders):
            found.again.setdefault(method, []).append(_step_ms(client, cell, method))
    return found


def close_to(method: str, times: Mapping[str, list[float]]) -> list[str]:
    """The RIVALS fastest others, as far as they are at most 15 % slower than the method."""
    others = sorted((one for one in times if one != method), key=lambda one: median(times[one]))
    return [other for other in others[:RIVALS] if median(times[other]) <= CLOSE * median(times[method])]


def job_of(cell: ChoiceCell, method: str) -> dict[str, Any]:
    """A job by a method, as `emulated_job` is asked for it."""
    commits = round(min(MOST_COMMITS, max(LEAST_COMMITS, TARGET_MS / cell.bound_ms)))
    settings, arguments = {**_settings(cell), "sync": method}, _arguments(cell, WARM_UP + commits)
    return {"settings": settings, "arguments": arguments, "warm_up": WARM_UP}


def _step_ms(client: Client, cell: ChoiceCell, method: str) -> float:
    return job_ms(client, job_of(cell, method))


def _chosen_by(client: Client, cell: ChoiceCell) -> SyncInUse:
    """What a job with auto uses so many seconds after its first step, or when its steps are over."""
    arguments = _arguments(cell, min(MOST_STEPS, round(2 * 1000 * LOOK_S / cell.bound_ms)))
    settings = {**_settings(cell), "sync": "auto"}
    job = client.train("emulated", epochs=1, arguments=arguments, backend="gloo", **settings)
    began_s: float | None = None
    for event in job.watch():
        now_s = stamp_s(event)
        if began_s is None and isinstance(event, StepCommitted):
            began_s = now_s
        if began_s is not None and now_s - began_s > LOOK_S:
            break
    found = job.status()
    if not found.ended:
        job.cancel()
    assert found.sync is not None, "a job with auto says what it uses"
    return found.sync


def _settings(cell: ChoiceCell) -> dict[str, Any]:
    everybody = {"requests": len(cell.links), "min_workers": cell.workers, "max_workers": cell.workers}
    return {**everybody, "batch_size": cell.workers, "equal_shares": True}


def _arguments(cell: ChoiceCell, steps: int) -> dict[str, str]:
    """A batch has a sample for each worker, and each takes as long as a batch computes."""
    return {
        "parameters": str(cell.model.parameters),
        "layers": str(cell.model.layers),
        "sample_ms": str(cell.model.compute_ms),
        "samples": str(cell.workers * steps),
    }


if __name__ == "__main__":
    main()
