"""What the experiments over emulated networks make of their runs, against figures made by hand."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from peerloom.client.types import StepCommitted
from peerloom.experiments import catalogue, network_heterogeneous, network_scaling
from peerloom.experiments.emulated_jobs import is_faithful, step_parts
from peerloom.experiments.emulated_networks import network_of
from peerloom.experiments.emulation import thesis_gpu
from peerloom.experiments.network_scaling import ONE_MACHINE, cell, order, percent_more, table, turns

Row = dict[str, Any]


def ran(step_s: float, lag_s: float = 0.0, workers: int = 1) -> Row:
    return {
        "step_s": step_s,
        "compute_s": 0.1,
        "communication_s": step_s - 0.1,
        "lag_s": lag_s,
        "workers": workers,
    }


def committed(step: int, at_s: float, compute_s: float) -> StepCommitted:
    return StepCommitted(
        job_id="job",
        sequence=step,
        time=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=at_s),
        step=step,
        total_steps=4,
        epoch=1,
        loss=1.0,
        samples=2,
        samples_per_s=1.0,
        step_s=9.0,
        compute_s=compute_s,
        communication_s=9.0,
        communicated_bytes=0,
    )


def test_a_step_is_measured_after_the_warm_up_by_the_commits_times() -> None:
    """Two steps of warm-up; the third and the fourth took 1.0 and 0.6 s, of which 0.3 s are computing."""
    events = [committed(1, 5, 9), committed(2, 7, 9), committed(3, 8, 0.2), committed(4, 8.6, 0.4)]
    assert step_parts(events) == {"step_s": 0.8, "compute_s": 0.3, "communication_s": 0.5}


def test_a_run_is_faithful_while_the_emulator_is_a_quarter_of_a_step_late_at_most() -> None:
    assert is_faithful(ran(0.2, lag_s=0.05))
    assert not is_faithful(ran(0.2, lag_s=0.051))
    assert is_faithful({"step_s": 0.2}), "in one machine nothing lags"
    assert is_faithful({"lag_s": 1.0}), "a round that reached nobody has no steps"


def test_the_cells_are_all_there_and_every_second_repeat_is_backwards() -> None:
    first = order(("mnist", "cifar10"), 3, 0)
    assert first == [(name, workers) for workers in (1, 2, 3) for name in ("mnist", "cifar10")]
    assert order(("mnist", "cifar10"), 3, 1) == first[::-1]


def test_a_cell_has_its_training_s_time_its_speed_up_and_its_worst_lag() -> None:
    """Two workers, 50 steps of 0.3 and 0.2 s; one alone took 0.3 and 0.25 a step, and had 100 to make."""
    found = cell([ran(0.3, 0.01), ran(0.2, 0.06)], 50, [ran(0.3), ran(0.25)], workers=2)
    assert found["training_s"]["mean"] == pytest.approx(12.5)
    # Student's t of one degree of freedom is 12.706; the deviation of 15 and 10 is 5 / sqrt(2), over sqrt(2).
    assert found["training_s"]["half"] == pytest.approx(12.706 * 2.5)
    assert found["speed_up"]["mean"] == pytest.approx((2.0 + 2.5) / 2)
    assert found["compute_s"] == pytest.approx(0.1)
    assert (found["lag_s"], found["faithful"]) == (0.06, False)
    assert cell([ran(0.3)], 50, [ran(0.3)], 1)["training_s"] == {"mean": 15.0, "half": None}


def test_added_percent_is_taken_repeat_by_repeat() -> None:
    assert percent_more([ran(0.3), ran(0.2)], [ran(0.2), ran(0.2)]) == pytest.approx([50, 0])


def test_a_turn_is_where_one_more_worker_costs_time_beyond_the_repeats() -> None:
    """From 1 to 2 a step of 0.1 s becomes 0.3: half as many take 50 % longer; from 2 to 3 time is won."""

    def row(workers: int, steps_s: list[float]) -> Row:
        return {"network": "n", "workers": workers, "runs": [ran(step_s) for step_s in steps_s]}

    rows = [row(1, [0.1, 0.1]), row(2, [0.3, 0.3]), row(3, [0.3, 0.3]), row(4, [0.39, 0.45])]
    (found,) = turns(rows)
    assert (found["from"], found["to"]) == (1, 2)
    assert found["percent"]["mean"] == pytest.approx(50)
    assert turns([row(1, [0.1]), row(2, [0.9])]) == [], "of one repeat nothing is known"


def scaling_result() -> dict[str, Any]:
    """Made by the experiment's own functions from invented runs: two repeats of one and two workers."""
    device, network = thesis_gpu().slower(10), network_of("csma-100M")
    runs = {
        (place, "mnist", workers): [
            ran(0.1 * workers + more, lag_s * (more > 0), workers) for lag_s in (0.0, 0.2)
        ]
        for place, more in ((ONE_MACHINE, 0.0), ("csma-100M", 0.05))
        for workers in (1, 2)
    }
    found = network_scaling._of_workload("mnist", runs, [network], device, 10)
    return {
        "experiment": "network-scaling",
        "device": {"name": device.name},
        "slowdown": 10.0,
        "networks": [ONE_MACHINE, "csma-100M"],
        "workloads": {"mnist": found},
    }


def test_a_scaling_s_rows_are_told_and_drawn() -> None:
    result = json.loads(json.dumps(scaling_result()))
    # 562.5 steps of 0.15 s, and 281.25 of 0.25; in one machine 0.2 s; late by 0.2 s in one of the runs.
    lines = table(result["workloads"])
    assert lines[0] == "| mnist | network | 1 | 2 |"
    assert "| training, s | csma-100M | 84.4 ± 0.0* | 70.3 ± 0.0* |" in lines
    assert "| predicted, ms a step | csma-100M | 92* | 126* |" in lines
    assert "| speed-up | csma-100M | 1.00 ± 0.00* | 1.20 ± 0.00* |" in lines
    assert lines[-3] == "| added, % | csma-100M | 50 ± 0* | 25 ± 0* |", "there is none of one machine"
    change = {"network": "n", "from": 4, "to": 5, "percent": {"mean": 3.04, "half": 1.0}}
    told = table({"mnist": {**result["workloads"]["mnist"], "turns": [change]}})
    assert told[-2] == "Longer from 4 to 5 workers over n: 3.0 ± 1.0 %"
    figure = catalogue.find("network-scaling").draw(result)
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert titles == [
        "mnist: training (thin: predicted)",
        "mnist: added by the network",
        "mnist: communication in a step",
    ]


def test_rounds_are_put_together_by_what_they_reached_and_drawn() -> None:
    """187.5 steps of 0.2 s are 37.5 s; rounds that reached none have the time of their answer."""
    none = {"nodes": {}, "workers": 0, "whole_s": 0.25, "lag_s": 0.5}
    two = {"nodes": {"a": 2}, "whole_s": 9.0, **ran(0.2, workers=2)}
    five = {"nodes": {"a": 2, "b": 3}, "whole_s": 9.0, **ran(0.1, lag_s=0.5, workers=5)}
    made = [
        network_heterogeneous.round_row(one, 187.5, number) for number, one in enumerate((five, none, two))
    ]
    alone = {**made[2], "kind": network_heterogeneous.ALONE_KIND, "workers": 1}
    found = network_heterogeneous.kinds([*made, alone])
    assert [(one["kind"], one["devices"], one["rounds"], one["faithful"]) for one in found] == [
        ("none", 0, 1, True),
        ("one device alone", 1, 1, True),
        ("2", 2, 1, True),
        ("3 and 2", 5, 1, False),
    ]
    assert [one["seconds"]["mean"] for one in found] == pytest.approx([0.25, 37.5, 37.5, 18.75])
    lines = network_heterogeneous.table("mnist", found)
    assert (lines[0], lines[-1]) == ("| mnist | none | 1 | 0.25 |", "| mnist | 3 and 2 | 1 | 18.75* |")
    result = {
        "device": {"name": "a device"},
        "slowdown": 10.0,
        "network": "csma-100M",
        "budget": 3,
        "workloads": {"mnist": {"rows": [*made, alone], "kinds": found}},
    }
    figure = catalogue.find("network-heterogeneous").draw(result)
    (axis,) = figure.axes
    shown = [text.get_text() for text in axis.get_xticklabels()]
    assert shown == ["none", "one device\nalone", "2", "3 and 2", "3"]
