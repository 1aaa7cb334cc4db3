"""What the live survey's benchmark makes of measured steps, by hand."""

import pytest

from benchmarks.choice_cells import ChoiceCell
from benchmarks.survey_live import LITTLE, METHODS, MUCH, NETWORK, figures, predicted_ms, speed_up

CELLS = [ChoiceCell(NETWORK, 4, model) for model in (MUCH, LITTLE)]


def test_speed_ups_stand_beside_predicted_ones_and_statements_are_judged() -> None:
    """All methods take twice as long as is predicted, but for A2A with little computing: longer than PS."""
    taken = {
        cell.title: {name: [2 * predicted_ms(cell, method)] * 5 for name, method in METHODS.items()}
        for cell in CELLS
    }
    taken[CELLS[1].title]["bsp-a2a"] = [1.5 * taken[CELLS[1].title]["bsp-ps, one server"][0]] * 5
    named = {one.name: one for one in figures(CELLS, taken)}
    assert named["speed-up of four workers by bsp-ps: much computing a byte"].ratio == pytest.approx(
        0.5, rel=1e-3
    )
    assert named["error of the predicted speed-ups"].value == pytest.approx(100, rel=1e-3)
    ahead = "a step by bsp-a2a: without overlap A2A is ahead of PS: "
    assert named[f"{ahead}{MUCH.name}"].verdict == "met"
    assert named[f"{ahead}{LITTLE.name}"].verdict == "missed"
    assert named["speed-up by the best method: a model of low intensity scales worse"].verdict == "met"


def test_a_speed_up_is_what_all_make_beside_one_alone() -> None:
    assert speed_up(CELLS[0], MUCH.compute_ms) == 4


def test_a_prediction_is_the_closed_form() -> None:
    """Directly: two trips of 2 ms, and each time 3/4 of 2.4 MB at 50 Mbit/s, after 800 ms of computing."""
    found = predicted_ms(CELLS[0], "schedule=bsp,topology=direct")
    assert found == pytest.approx(800 + 2 * (2 + 3 / 4 * 2.4e6 * 8 / 50e3), rel=0.01)
