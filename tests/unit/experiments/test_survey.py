"""The survey's figures and statements, from a model that has one fitted number; its misses are told too."""

import json
from functools import cache
from pathlib import Path

import pytest

from peerloom.experiments import survey_hardware as hardware
from peerloom.experiments.survey import (
    CONTENTION,
    all_reduce_s,
    closed_forms,
    compared,
    speed_up,
)
from peerloom.experiments.survey_claims import PRINTED, PrintedSpeedUp, claims, named
from peerloom.experiments.survey_methods import METHODS, predicted
from peerloom.experiments.survey_models import SurveyModel, bert_base, bert_large, resnet50
from peerloom.experiments.survey_timelines import small_timelines

ROOT = Path(__file__).parents[3]
MODELS = {model.title: model for model in (resnet50(), bert_base(), bert_large())}


@cache
def on(model: str, workers: int, method: str) -> float:
    return speed_up(MODELS[model], method, workers, CONTENTION)


def test_models_have_the_parameters_of_their_architectures() -> None:
    """As torchvision's and Google's checkpoints count them; 3.9 and 4.1 billion multiplications are usual."""
    assert [(one.parameters, len(one.tensors)) for one in MODELS.values()] == [
        (25_557_032, 161),
        (110_106_428, 206),
        (336_226_108, 398),
    ]
    assert sum(tensor.work for tensor in resnet50().tensors) == pytest.approx(4.09e9, rel=0.002)


def test_constants_follow_from_what_is_printed() -> None:
    """7.85 - (10.1 - 7.85) us; 1 MiB in 100.8 us less that; 6 messages of 336 MB and start-ups in 441 ms."""
    assert pytest.approx(5.6e-6) == hardware.STARTUP_S
    assert pytest.approx(88.1e9, rel=0.001) == hardware.INFINIBAND_BITS_PER_S
    assert pytest.approx(36.6e9, rel=0.001) == hardware.PCIE_BITS_PER_S
    assert all_reduce_s(336_226_108, 4) == pytest.approx(0.441)
    # 470 * 25,557,032 * 64 operations at 597e9 in 163 ms.
    assert hardware.iteration_s(resnet50()) == pytest.approx(0.2099, abs=1e-4)


@pytest.mark.parametrize("one", PRINTED, ids=lambda one: f"{one.model} on {one.workers}")
def test_each_printed_speed_up_lies_between_no_overlap_and_full_overlap(one: PrintedSpeedUp) -> None:
    """By closed forms with nothing fitted; the printed digits are rounded to 0.1."""
    model: SurveyModel = MODELS[one.model]
    low, high = closed_forms(
        hardware.iteration_s(model), all_reduce_s(model.parameters, one.workers), one.workers
    )
    assert low - 0.05 <= one.speed_up <= high + 0.05


def test_without_overlap_the_printed_slowdown_comes_out() -> None:
    """4 * 163 / (163 + 441): 1.08 as printed."""
    assert closed_forms(0.163, 0.441, 4)[0] == pytest.approx(1.079, abs=0.001)
    assert on("BERT-Large", 4, "bsp-a2a") == pytest.approx(1.08, abs=0.005)


@pytest.mark.parametrize("one", PRINTED, ids=lambda one: f"{one.model} on {one.workers}")
def test_speed_ups_are_within_a_tenth_of_the_printed_ones(one: PrintedSpeedUp) -> None:
    method = one.method or "mg-wfbp"
    assert on(one.model, one.workers, method) == pytest.approx(one.speed_up, rel=0.1)


@pytest.mark.parametrize("workers", [4, 32])
def test_low_intensity_and_small_batches_scale_badly(workers: int) -> None:
    parts = [on(model, workers, "mg-wfbp") for model in MODELS]
    assert parts == sorted(parts, reverse=True)


@pytest.mark.parametrize("workers", [4, 32])
@pytest.mark.parametrize("model", MODELS)
def test_without_overlap_all_to_all_is_ahead_of_servers(model: str, workers: int) -> None:
    assert on(model, workers, "bsp-a2a") > on(model, workers, "bsp-ps")


def test_many_small_all_reduces_on_32_fall_behind_servers_and_merging_helps() -> None:
    """161 tensors, 62 start-ups each: 56 ms of 5.6 us. So over A2A one merges, and neither always wins."""
    per_tensor, merged = on("ResNet-50", 32, "wfbp-a2a"), on("ResNet-50", 32, "mg-wfbp")
    assert on("ResNet-50", 32, "wfbp-ps") > per_tensor
    assert merged > 1.1 * per_tensor
    assert on("BERT-Base", 32, "wfbp-ps") > on("BERT-Base", 32, "wfbp-a2a")
    assert on("ResNet-50", 32, "bytescheduler-ps") > merged
    assert on("BERT-Base", 4, "mg-wfbp") > on("BERT-Base", 4, "wfbp-ps")


def test_cutting_suits_servers_and_not_all_reduces() -> None:
    """Whole tensors are sent whole by both on 4; in pieces a server's push and pull pass each other."""
    assert on("ResNet-50", 4, "bytescheduler-ps") > on("ResNet-50", 4, "wfbp-ps")
    layers = resnet50().layers(hardware.iteration_s(resnet50()))
    _, chosen = predicted("bytescheduler-a2a", layers, 32, CONTENTION)
    assert chosen.cut_bytes > 2_359_296 * 4, "the best cut of an all-reduce is none: no tensor is that long"


def test_claims_and_figures_are_told_as_they_are() -> None:
    found = {
        (model, workers): {method: 1.0 + number for number, method in enumerate(METHODS)}
        for model in MODELS
        for workers in (4, 32)
    }
    by_text = {one.text: one.cells for one in claims(found)}
    assert by_text["without overlap A2A is ahead of PS"]["ResNet-50 on 4"] is True
    assert by_text["with WFBP PS is ahead of A2A on 32"]["BERT-Base on 32"] is False
    assert by_text["neither PS nor A2A is always the best"] == {"all": False}
    assert named(PRINTED[0], found) == 7.0
    rows = compared(tuple(MODELS.values()), found, found)
    assert [row["method"] for row in rows][:2] == ["bytescheduler-a2a", "bytescheduler-ps"]
    assert rows[0]["error"] == pytest.approx(7 / 4 - 1)


def test_the_committed_result_is_what_the_model_says() -> None:
    """Some of its cells; they change with the model only, on no machine."""
    kept = json.loads((ROOT / "docs" / "experiments" / "survey.json").read_text())
    cells = {(one["model"], one["workers"]): one["one_fitted"] for one in kept["speed_ups"]}
    assert kept["fitted"]["contention"] == CONTENTION
    assert (
        min(kept["fitted"]["tried"], key=lambda one: max(map(abs, one["errors"])))["contention"] == CONTENTION
    )
    for model, workers, method in (
        ("ResNet-50", 4, "bytescheduler-ps"),
        ("BERT-Base", 32, "wfbp-a2a"),
        ("BERT-Large", 32, "mg-wfbp"),
    ):
        assert cells[model, workers][method] == on(model, workers, method)
    found = {one["text"]: (sum(one["cells"].values()), len(one["cells"])) for one in kept["claims"]}
    assert found["with WFBP PS is ahead of A2A on 32"] == (3, 3)
    assert found["MG-WFBP is the best for BERT"] == (1, 4)


def test_a_timeline_has_every_layer_computed_and_sent() -> None:
    for timeline in small_timelines().values():
        kinds = {one["what"].split()[0] for one in timeline["intervals"]}
        assert {"forward", "backward"} < kinds
        assert max(one["end_s"] for one in timeline["intervals"]) <= timeline["step_s"] + 1e-9
