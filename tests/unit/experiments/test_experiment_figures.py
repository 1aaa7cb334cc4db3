"""What experiments compute from what they saw, against figures made by hand."""

import sys
from dataclasses import asdict, replace

import pytest

from peerloom.errors import DataLossError, FailedPreconditionError, InvalidArgumentError, NotFoundError
from peerloom.experiments import byzantine, catalogue, plots, thesis
from peerloom.experiments.asking import SelectionRound
from peerloom.experiments.heterogeneous import composition
from peerloom.experiments.pictures.canvas import canvas
from peerloom.experiments.pictures.survival import survival_curve
from peerloom.experiments.repeats import repeats, spread
from peerloom.experiments.scaling import added_percent
from peerloom.experiments.selection import means, placement, summary
from peerloom.experiments.settings import Settings
from peerloom.experiments.versus_single import median_speed_up
from peerloom.simulator import compare, usual

SLOTS = (0, 2, 0, 1)


def test_a_summary_counts_hits_rounds_and_the_first_success() -> None:
    """Nodes keep the names of the settings although they were started at other places."""
    rounds = [
        SelectionRound(("node-2", "node-4"), {}, 0.1),
        SelectionRound(("node-3", "node-4"), {"node-3": 2}, 0.3),
        SelectionRound(("node-3", "node-2"), {"node-3": 2, "node-2": 1}, 0.2),
    ]
    found = summary(rounds, SLOTS, places=[0, 3, 1, 2])
    assert found["hits"] == {"node-2": 2, "node-4": 1}
    assert (found["reached"], found["first_reached"]) == (2, 2)
    assert (found["requests"], found["slots"], found["median_round_s"]) == (6, 5, 0.2)


def test_rounds_that_reach_nobody_have_no_first() -> None:
    found = summary([SelectionRound(("node-3",), {}, 0.1)], SLOTS, places=[0, 1, 2, 3])
    assert (found["reached"], found["first_reached"]) == (0, None)


def test_means_over_systems_keep_the_range() -> None:
    runs = [
        {"hits": {"node-2": 4}, "reached": 4, "requests": 10, "slots": 8},
        {"hits": {"node-2": 1}, "reached": 1, "requests": 10, "slots": 2},
    ]
    assert means(runs) == {
        "hits": {"node-2": 2.5},
        "reached": 2.5,
        "reached_least": 1,
        "reached_most": 4,
        "requests": 10,
        "slots_a_request": 0.5,
    }


def test_a_placement_keeps_the_asker_first_and_is_repeatable() -> None:
    places = placement(20, (0, 3, 1))
    assert places[0] == 0
    assert sorted(places) == list(range(20))
    assert places == placement(20, (0, 3, 1))
    assert places != placement(20, (0, 3, 2))


@pytest.mark.parametrize(
    ("network", "machine", "percent"), [(3.0, 2.0, 50.0), (1.0, 2.0, -50.0), (None, 2.0, None)]
)
def test_the_added_time_is_a_percentage_of_one_machine(
    network: float | None, machine: float, percent: float | None
) -> None:
    assert added_percent({"training_s": network}, {"training_s": machine}) == percent


def test_the_speed_up_is_the_median_of_the_pairs() -> None:
    times = [(1.0, 2.0), (1.0, 4.0), (2.0, 6.0), (None, 1.0)]
    pairs = [{"system": {"training_s": ours}, "one_node": {"training_s": alone}} for ours, alone in times]
    assert median_speed_up(pairs) == 3.0
    assert median_speed_up(pairs[3:]) is None


def test_what_was_reached_reads_as_in_the_thesis() -> None:
    assert composition({"nodes": {"node-6": 2, "node-5": 3}}) == "3 and 2"
    assert composition({"nodes": {}}) == "none"


def test_the_survival_curve_is_that_of_kaplan_and_meier() -> None:
    """Of four sessions one is lost at 10 s (3/4 stay), one leaves at 20 s, one is lost at 30 s (3/8)."""
    sessions = [(10.0, True), (20.0, False), (30.0, True), (40.0, False)]
    assert survival_curve(sessions) == [(0.0, 1.0), (10.0, 0.75), (30.0, 0.375)]


def test_the_table_of_the_thesis_contradicts_itself_in_its_first_two_rows() -> None:
    """21 hits can't make 35 rounds; 43 can't make 46; the others can."""
    assert set(thesis.contradictions()) == {2, 3}
    assert thesis.slots_of_nodes()[4:7] == (3, 2, 2)
    assert sum(thesis.slots_of_nodes()) == 9


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("nodes", {"slots": ()}),
        ("slots of all nodes", {"slots": (0, 0)}),
        ("budget", {"slots": (0, 1), "budgets": (2,)}),
        ("budget", {"budgets": (0,)}),
        ("budgets", {"budgets": ()}),
        ("rounds", {"rounds": 0}),
        ("scale", {"scale": 0.0}),
        ("scale", {"scale": float("nan")}),
        ("workers", {"workers": 0}),
        ("systems", {"systems": 0}),
        ("seed", {"seed": -1}),
    ],
)
def test_a_setting_outside_its_limits_is_named(setting: str, values: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError, match=setting):
        Settings(data={}, **values)  # type: ignore[arg-type]  # each case has one wrong value


def test_unknown_names_bring_the_nearest() -> None:
    with pytest.raises(NotFoundError, match="Did you mean selection"):
        catalogue.find("selektion")
    with pytest.raises(NotFoundError, match="Did you mean beliefs"):
        plots.find("belief")
    with pytest.raises(NotFoundError, match="Did you mean mnist"):
        Settings(data={}, workloads=("minst",))


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(FailedPreconditionError, match=r"pip install 'peerloom\[plot\]'"):
        canvas()


def test_the_spread_of_repeats_leaves_out_the_outer_twentieth() -> None:
    """Of 1 to 100 the mean is 50.5; two at each end (100 * 2.5 %, rounded to even) lie outside."""
    assert spread([float(value) for value in range(1, 101)]) == {"mean": 50.5, "low": 3.0, "high": 98.0}


def test_repeats_of_figure_6_are_repeatable_and_of_the_thesis_s_nodes() -> None:
    rows = repeats([2, 8], 10, "thesis", first_seed=3, count=1)
    assert [row["budget"] for row in rows] == [2, 8]
    assert set(rows[0]["hits"]) == {"node-5", "node-6", "node-7", "node-11", "node-17"}
    assert rows[0]["reached"]["mean"] <= rows[1]["reached"]["mean"] <= 10
    assert rows == repeats([2, 8], 10, "thesis", first_seed=3, count=1)


@pytest.mark.parametrize("kind", ["regret", "hit-rate", "hits"])
def test_a_simulation_is_drawn_with_labelled_axes_and_what_is_none_is_refused(kind: str) -> None:
    draw = plots.find(kind).of_result
    assert draw is not None
    report = asdict(compare(replace(usual("thesis20"), rounds=4), ["random", "thesis"], [2, 3], 2))
    shown = [axis for axis in draw(report).axes if axis.get_visible()]
    assert len(shown) == (1 if kind == "hit-rate" else 2)
    assert all(axis.get_title(loc="left") and "(" in axis.get_xlabel() for axis in shown)
    assert all("(" in axis.get_ylabel() for axis in shown)
    with pytest.raises(DataLossError, match="peerloom"):
        draw({"reports": [{"policy": "thesis"}]})


def test_less_than_a_third_is_hostile_and_nobody_without_an_attack() -> None:
    assert [byzantine.hostile_of(workers, "noise") for workers in byzantine.WORKERS] == [1, 2, 5]
    assert byzantine.hostile_of(8, byzantine.NO_ATTACK) == 0


def test_a_worker_sends_what_a_ring_would_make_it_send() -> None:
    """2,410 numbers of 4 bytes, 7 / 8 of them twice; 8 x 8 products of 8 bytes to each of 7 others."""
    assert byzantine.sent_bytes(8) == {"gradient": 16_870, "distances": 3_584}


def test_answers_become_one_row_a_combination_in_the_order_of_their_seeds() -> None:
    def answer(workers: int, attack: str, rule: str, seed: int, audits: bool = False) -> dict[str, object]:
        accuracy = 0.5 + 0.1 * seed
        came = {"honest_accused": 0, "honest_dismissed": seed, "audited_steps": 0.1 * seed}
        return {
            **{"workers": workers, "attack": attack, "rule": rule, "seed": seed, "audits": audits},
            **{"accuracy": accuracy, "rule_s": 0.002},
            **({"accused_at": [9 - seed, None], "dismissed_at": [], **came} if audits else {}),
        }

    answers = [
        one
        for seed in (1, 0)
        for workers in byzantine.WORKERS
        for attack in byzantine.ATTACKS
        for one in (
            *(answer(workers, attack, rule, seed) for rule in byzantine.RULES),
            answer(workers, attack, "auto", seed, audits=True),
        )
    ]
    rows = list(byzantine.rows_of(answers))
    assert len(rows) == 3 * 7 * 7
    assert (rows[-1]["rule"], rows[-1]["audits"]) == (
        "auto, audits",
        {
            "accused_at": [8, 9],
            "dismissed_at": [],
            "honest_accused": 0,
            "honest_dismissed": 1,
            "audited_steps": 0.05,
        },
    )
    assert rows[-2] == {
        "workers": 16,
        "hostile": 5,
        "attack": "inner product",
        "rule": "auto",
        "accuracies": [0.5, 0.6],
        "median_rule_ms": 2.0,
    }
    picture = catalogue.find("byzantine").draw({"rows": rows})
    assert len(picture.axes) == 3
