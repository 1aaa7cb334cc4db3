"""Time against workers over emulated networks, with emulated compute (the thesis's Figures 4 and 5).

The same jobs run in one machine of as many slots, where workers talk over loopback, and behind each network
of ns-3, a worker a node. Computing is waited for, so two cores do for eight workers; gradients, optimiser,
messages and the system are real. A job measures some steps; the time of a training is as many of them as it
has. Devices are `slowdown` times slower than the thesis's and train on that part of its data, so one worker
needs what one of its GPUs does. A run during which the emulator fell behind is made again, twice at most; a
cell with one that did each time is marked.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from statistics import fmean
from typing import Any

from peerloom.errors import InternalError
from peerloom.experiments.emulated_jobs import (
    LAG_PART,
    WARM_UP,
    Ask,
    EmulatedJob,
    Row,
    behind,
    is_faithful,
    one_machine,
    warm_up,
)
from peerloom.experiments.emulated_networks import MTU_BYTES, EmulatedNetwork, network_of
from peerloom.experiments.emulation import (
    Device,
    operations,
    parameters,
    thesis_gpu,
    thesis_step_s,
    training_steps,
)
from peerloom.experiments.settings import Settings, Tell
from peerloom.experiments.workloads import WORKLOADS
from peerloom.simulator.figures import mean_with_interval
from peerloom.testbed.needs import check_needs

REPEATS = 5
STEPS = 10
ATTEMPTS = 3  # a run during which the emulator fell behind is made again
ONE_MACHINE = "one machine"
# Of a table: a row's title, the figure, what it is multiplied by, digits behind the point.
_SHOWN = (
    ("training, s", "training_s", 1, 1),
    ("computing, ms a step", "compute_s", 1000, 0),
    ("communication, ms a step", "communication_s", 1000, 0),
    ("predicted, ms a step", "predicted_step_s", 1000, 0),
    ("speed-up", "speed_up", 1, 2),
    ("added, %", "added_percent", 1, 0),
)
Cell = tuple[str, str, int]  # network, workload, workers
Runs = dict[Cell, list[Row]]


def run(settings: Settings, tell: Tell) -> dict[str, Any]:
    """`settings.rounds` runs of each cell (None: 5), 1 to `settings.workers` workers; rows by workload.

    Raises InvalidArgumentError for a network that ns-3 can't carry, and what Testbed raises.
    """
    most, repeats = settings.workers, settings.rounds or REPEATS
    networks = [network_of(name) for name in settings.networks]
    for network in networks:
        network.check((1,) * most, most + 1)
    for network in networks:
        check_needs(network.plan((1,) * most, most + 1))  # before the minutes in one machine
    device = thesis_gpu().slower(settings.slowdown)
    runs: Runs = {}
    for place in (None, *networks):
        name = place.name if place else ONE_MACHINE
        tell(f"{name}: starting {'a node' if place else 'one node'} for each of {most} workers")
        with _place(place, most) as ask:
            warm_up(ask, most if place else 1)
            for repeat in range(repeats):
                for workload, workers in order(settings.workloads, most, repeat):
                    row = _measured(ask, workload, workers, device, settings.seed)
                    runs.setdefault((name, workload, workers), []).append(row)
                    tell(f"{name}, {workload}, {workers} workers: {_told(row)}")
    found = {
        name: _of_workload(name, runs, networks, device, settings.slowdown) for name in settings.workloads
    }
    for line in table(found):
        tell(line)
    return {
        "device": asdict(device),
        "slowdown": settings.slowdown,
        "repeats": repeats,
        "steps": STEPS,
        "warm_up": WARM_UP,
        "lag_part": LAG_PART,
        "attempts": ATTEMPTS,
        "mtu_bytes": MTU_BYTES,
        "networks": [ONE_MACHINE, *settings.networks],
        "workloads": found,
    }


def order(workloads: Sequence[str], most: int, repeat: int) -> list[tuple[str, int]]:
    """The cells of one repeat: every second one backwards, so that a drift doesn't favour few workers."""
    cells = [(workload, workers) for workers in range(1, most + 1) for workload in workloads]
    return cells[::-1] if repeat % 2 else cells


def _place(network: EmulatedNetwork | None, most: int) -> AbstractContextManager[Ask]:
    return one_machine(most) if network is None else behind(network, (1,) * most, most + 1)


def _measured(ask: Ask, workload: str, workers: int, device: Device, seed: int) -> Row:
    batch = WORKLOADS[workload].batch * workers
    job = EmulatedJob(
        workload, workers, workers, batch, device.sample_s(workload), device.step_s, STEPS, seed=seed
    )
    for attempt in range(1, ATTEMPTS + 1):
        row = {**ask(job), "attempt": attempt}
        if row["workers"] != workers:
            raise InternalError(f"{workers} workers were asked for, and {row['workers']} trained.")
        if is_faithful(row):
            break
    return row


def _told(row: Row) -> str:
    lag = "" if "lag_s" not in row else f", lag {1000 * row['lag_s']:.1f} ms"
    late = "" if is_faithful(row) else ": not faithful"
    return (
        f"{1000 * row['step_s']:.1f} ms a step, {1000 * row['communication_s']:.1f} communication{lag}{late}"
    )


def _of_workload(
    name: str, runs: Runs, networks: Sequence[EmulatedNetwork], device: Device, slowdown: float
) -> dict[str, Any]:
    workload = WORKLOADS[name]
    by_name = {one.name: one for one in networks}
    rows = []
    for (place, of, workers), each in sorted(runs.items(), key=lambda one: one[0][2]):
        if of == name:
            steps = training_steps(workload, workload.batch * workers, slowdown)
            alone, base = runs[place, name, 1], runs[ONE_MACHINE, name, workers]
            network = by_name.get(place)
            predicted_s = network and network.predicted_step_s(name, device, workload.batch, workers)
            row = {"network": place, "workers": workers, **cell(each, steps, alone, workers)}
            added = None if network is None else interval(percent_more(each, base))
            rows.append({**row, "added_percent": added, "predicted_step_s": predicted_s, "runs": each})
    return {
        "title": workload.title,
        "batch": workload.batch,
        "parameters": parameters(name),
        "operations": operations(name),
        "asked_compute_s": device.compute_s(name, workload.batch),
        "thesis_one_gpu_s": thesis_step_s(workload)[0] * training_steps(workload, workload.batch),
        "rows": rows,
        "turns": turns(rows),
    }


def cell(runs: Sequence[Row], steps: float, alone: Sequence[Row], workers: int) -> dict[str, Any]:
    """A cell's means over its runs, those of times with half the width of their 95 % interval.

    `alone` are the runs of one worker, one a repeat as here: n workers make an n-th of its steps.
    """
    lags = [row["lag_s"] for row in runs if row.get("lag_s") is not None]
    faster = [workers * one["step_s"] / row["step_s"] for one, row in zip(alone, runs, strict=True)]
    return {
        "training_s": interval([steps * row["step_s"] for row in runs]),
        "step_s": interval([row["step_s"] for row in runs]),
        "compute_s": fmean(row["compute_s"] for row in runs),
        "communication_s": interval([row["communication_s"] for row in runs]),
        "speed_up": interval(faster),
        "lag_s": max(lags, default=None),
        "faithful": all(map(is_faithful, runs)),
    }


def percent_more(runs: Sequence[Row], base: Sequence[Row]) -> list[float]:
    """By how much longer a step took than in one machine, repeat by repeat (Figure 5)."""
    return [100 * (row["step_s"] / one["step_s"] - 1) for row, one in zip(runs, base, strict=True)]


def interval(values: Sequence[float]) -> dict[str, float | None]:
    """The mean, and half the width of its 95 % interval (None of a single value)."""
    mean, half = mean_with_interval(values)
    return {"mean": mean, "half": half if len(values) > 1 else None}


def turns(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Where one more worker made a training longer, beyond what the repeats leave open.

    Longer counts when the 95 % interval of the difference, repeat by repeat, lies above 0.
    """
    found = []
    by_cell = {(row["network"], row["workers"]): row for row in rows}
    for (network, workers), row in by_cell.items():
        more = by_cell.get((network, workers + 1))
        if more is not None:
            # A training of n workers is as long as an n-th of its steps are.
            changes = [
                100 * (workers * after["step_s"] / ((workers + 1) * before["step_s"]) - 1)
                for before, after in zip(row["runs"], more["runs"], strict=True)
            ]
            mean, half = mean_with_interval(changes)
            if mean - half > 0:
                change = interval(changes)
                found.append({"network": network, "from": workers, "to": workers + 1, "percent": change})
    return found


def table(workloads: Mapping[str, Any]) -> list[str]:
    """Markdown of a result, a column a number of workers: what a page shows of it."""
    lines = []
    for name, workload in workloads.items():
        most = max(row["workers"] for row in workload["rows"])
        lines += [
            f"| {name} | network | {' | '.join(map(str, range(1, most + 1)))} |",
            f"| --- | --- |{' ---: |' * most}",
        ]
        for title, key, scale, digits in _SHOWN:
            for network in dict.fromkeys(row["network"] for row in workload["rows"]):
                rows = [row for row in workload["rows"] if row["network"] == network]
                cells = [_cell(row[key], scale, digits, row["faithful"]) for row in rows]
                if any(cells):
                    lines.append(f"| {title} | {network} | {' | '.join(cells)} |")
        lines += [
            "",
            *(
                f"Longer from {one['from']} to {one['to']} workers over {one['network']}: "
                f"{shown(one['percent'])} %"
                for one in workload["turns"]
            ),
            "",
        ]
    return lines


def _cell(value: Any, scale: float, digits: int, faithful: bool) -> str:
    """A mean with its interval, or a number; with an asterisk where the emulator fell behind."""
    if value is None:
        return ""
    text = shown(value, scale, digits) if isinstance(value, Mapping) else f"{scale * value:.{digits}f}"
    return text if faithful else f"{text}*"


def shown(value: Mapping[str, float | None], scale: float = 1.0, digits: int = 1) -> str:
    """E.g. "12.3 ± 0.4"."""
    assert value["mean"] is not None, "a mean there is"
    half = "" if value["half"] is None else f" ± {scale * value['half']:.{digits}f}"
    return f"{scale * value['mean']:.{digits}f}{half}"
