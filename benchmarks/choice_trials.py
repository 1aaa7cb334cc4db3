"""All that is measured in a cell of `choice`, asked from inside its testbed.

`python -m benchmarks.choice_trials {"cell": TITLE}` runs a job of the task "emulated" by `--sync auto`, and
then jobs by what it chose and by the ways that differ there, one after the other: it prints which method auto
used for the most of its last seconds, what it had predicted for that one, and milliseconds a step. Auto's job
would be a long one, and is cancelled then: auto tries more where there is time to come.

A way that is slower than the fastest so far by half is out of the race: its job ends after few steps.

Of so many times the least is partly luck. So where others come close to auto's way these run again with it,
in turn, and those times alone are compared.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from benchmarks.choice_cells import CELLS, ChoiceCell, ways_of
from benchmarks.committed import stamp_s
from benchmarks.emulated_job import job_ms
from peerloom.client.client import Client
from peerloom.client.types import StepCommitted, SyncChanged
from peerloom.kit.sync_grammar import parse_sync

LOOK_S, LAST_S = 60.0, 20.0  # how long auto is watched, and how much of that counts
LEFT_S = 600.0  # of its job, at least, where the task has as many samples
MOST_SAMPLES = 1_000_000  # that the task has
TARGET_MS, LEAST_COMMITS, MOST_COMMITS, WARM_UP = 2000, 6, 80, 2
RIVALS, CLOSE, AGAIN = 2, 1.15, 3
HOPELESS = 1.5  # times the fastest
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
    """Auto's job, its way and then each other one once, and what comes close to auto's again."""
    chosen, predicted_ms = _chosen_by(client, cell)
    times: Times = {chosen: [_step_ms(client, cell, chosen)]}
    for method in (str(parse_sync("sync", way)) for way in ways_of(cell)):
        if method not in times:
            fastest_ms = min(median(taken) for taken in times.values())
            times[method] = [_step_ms(client, cell, method, HOPELESS * fastest_ms)]
    found = Trials(chosen, predicted_ms, times)
    contenders = close_to(chosen, times)
    for _ in range(AGAIN if contenders else 0):
        for method in (chosen, *contenders):
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


def _step_ms(client: Client, cell: ChoiceCell, method: str, at_most_ms: float = float("inf")) -> float:
    return job_ms(client, job_of(cell, method), at_most_ms)


def longest_used(changes: Sequence[tuple[float, str]], from_s: float, until_s: float) -> str:
    """What was used for the most of that time; `changes` have when each method came into use, in order."""
    used: dict[str, float] = {}
    ends = [at_s for at_s, _ in changes[1:]] + [until_s]
    for (at_s, method), end_s in zip(changes, ends, strict=True):
        used[method] = used.get(method, 0.0) + max(0.0, min(end_s, until_s) - max(at_s, from_s))
    return max(used, key=lambda method: used[method])


def _chosen_by(client: Client, cell: ChoiceCell) -> tuple[str, float | None]:
    """What a job with auto used in the end, and how many ms it had predicted for that, where it says so."""
    arguments = _arguments(cell, round(1000 * (LOOK_S + LEFT_S) / cell.bound_ms))
    settings = {**_settings(cell), "sync": "auto"}
    job = client.train("emulated", epochs=1, arguments=arguments, backend="gloo", **settings)
    changes: list[tuple[float, str]] = []
    began_s: float | None = None
    now_s = 0.0
    for event in job.watch():
        now_s = stamp_s(event)
        if isinstance(event, SyncChanged):
            changes = [*(changes or [(0.0, event.former)]), (now_s, event.method)]
        if began_s is None and isinstance(event, StepCommitted):
            began_s = now_s
        if began_s is not None and now_s - began_s > LOOK_S:
            break
    found = job.status()
    assert not found.ended, f"a job with auto is looked at while it trains: {found}"
    job.cancel()
    assert found.sync is not None, "a job with auto says what it uses"
    method = longest_used(changes or [(0.0, found.sync.method)], now_s - LAST_S, now_s)
    predicted = found.sync.predicted if found.sync.method == method else None
    return method, None if predicted is None else 1000 * predicted.step_s


def _settings(cell: ChoiceCell) -> dict[str, Any]:
    everybody = {"requests": len(cell.links), "min_workers": cell.workers, "max_workers": cell.workers}
    return {**everybody, "batch_size": cell.workers, "equal_shares": True}


def _arguments(cell: ChoiceCell, steps: int) -> dict[str, str]:
    """A batch has a sample for each worker, and each takes as long as a batch computes."""
    return {
        "parameters": str(cell.model.parameters),
        "layers": str(cell.model.layers),
        "sample_ms": str(cell.model.compute_ms),
        "samples": str(cell.workers * min(steps, MOST_SAMPLES // cell.workers)),
    }


if __name__ == "__main__":
    main()
