"""The survey of communication in data-parallel training (Shi et al., arXiv 2005.13247), from a model of it.

No GPU runs here. Each printed speed-up stands beside closed forms with no and with full overlap, which are
fitted to nothing, and beside a discrete-event simulation of the schedules: with nothing fitted, and with one
number, the part of a GPU's speed that communication beside it costs. That is chosen, in steps of 0.05, so
that the largest relative error of the five printed speed-ups is least.
"""

from typing import Any

from peerloom.experiments import survey_hardware as hardware
from peerloom.experiments.settings import Settings, Tell
from peerloom.experiments.survey_claims import (
    ON_4,
    ON_32,
    PRINTED,
    PRINTED_NVLINK,
    PRINTED_WITHOUT_OVERLAP,
    SpeedUps,
    claims,
    named,
)
from peerloom.experiments.survey_methods import METHODS, SIZES, Links, predicted
from peerloom.experiments.survey_models import SurveyModel, bert_base, bert_large, resnet50
from peerloom.experiments.survey_timelines import small_timelines
from peerloom.kit.codec_sizes import VALUE_BYTES
from peerloom.kit.sync_model.layer_times import BACKWARD_PART

CONTENTION = 0.55
TRIED = tuple(round(0.05 * step, 2) for step in range(19))
BANDWIDTHS_GBIT_PER_S = (1, 2.5, 5, 10, 25, 50, 100)
NVLINK_BATCH = 128


def run(settings: Settings, tell: Tell) -> dict[str, Any]:
    """All of it; no setting changes anything, and the same code gives the same figures."""
    models = (resnet50(), bert_base(), bert_large())
    tell("speed-ups with nothing fitted")
    plain = speed_ups(models, 0.0)
    tell(f"speed-ups with a contention of {CONTENTION}")
    fitted = speed_ups(models, CONTENTION)
    tell("how far each contention is from the printed speed-ups")
    fit = fit_table(models)
    tell("step time against bandwidth, and timelines")
    return {
        "live": "not part of this: no ns-3, no link and no GPU was used",
        "constants": _constants(),
        "models": [_of_model(model) for model in models],
        "fitted": {"contention": CONTENTION, "tried": fit},
        "printed": compared(models, plain, fitted),
        "beside": _beside(),
        "speed_ups": [
            {"model": model, "workers": workers, "nothing_fitted": plain[model, workers], "one_fitted": found}
            for (model, workers), found in fitted.items()
        ],
        "claims": [{"text": one.text, "cells": one.cells} for one in claims(fitted)],
        "bandwidth": bandwidth_curve(bert_base()),
        "timelines": small_timelines(),
    }


def speed_ups(models: tuple[SurveyModel, ...], contention: float) -> SpeedUps:
    """Of all methods, over one GPU."""
    return {
        (model.title, workers): {method: speed_up(model, method, workers, contention) for method in METHODS}
        for model in models
        for workers in (ON_4, ON_32)
    }


def speed_up(model: SurveyModel, method: str, workers: int, contention: float) -> float:
    """Simulated: the iterations of `workers` GPUs in the time of one of a single GPU."""
    alone_s = hardware.iteration_s(model)
    step_s = predicted(method, model.layers(alone_s), workers, contention)[0].step_s
    return round(workers * alone_s / step_s, 3)


def closed_forms(alone_s: float, message_s: float, workers: int) -> tuple[float, float]:
    """N t / (t + m) without any overlap, and with all that can be: the backward pass is two thirds of t."""
    overlapped_s = (1 - BACKWARD_PART) * alone_s + max(BACKWARD_PART * alone_s, message_s)
    return round(workers * alone_s / (alone_s + message_s), 3), round(workers * alone_s / overlapped_s, 3)


def all_reduce_s(parameters: int, workers: int, bits_per_s: float = hardware.PCIE_BITS_PER_S) -> float:
    """A gradient around a ring: 2 (n - 1) (a + D / n / rate)."""
    chunk_s = 8 * VALUE_BYTES * parameters / workers / bits_per_s
    return 2 * (workers - 1) * (hardware.STARTUP_S + chunk_s)


def fit_table(models: tuple[SurveyModel, ...]) -> list[dict[str, Any]]:
    """Relative errors of the printed speed-ups by contention; for an unnamed method that of mg-wfbp."""
    by_title = {model.title: model for model in models}
    table = []
    for contention in TRIED:
        errors = [
            speed_up(by_title[one.model], one.method or "mg-wfbp", one.workers, contention) / one.speed_up - 1
            for one in PRINTED
        ]
        table.append({"contention": contention, "errors": [round(error, 4) for error in errors]})
    return table


def compared(models: tuple[SurveyModel, ...], plain: SpeedUps, fitted: SpeedUps) -> list[dict[str, Any]]:
    """Each printed speed-up beside what was computed."""
    rows = []
    for one in PRINTED:
        model = next(model for model in models if model.title == one.model)
        alone_s = hardware.iteration_s(model)
        low, high = closed_forms(alone_s, all_reduce_s(model.parameters, one.workers), one.workers)
        methods = fitted[one.model, one.workers]
        rows.append(
            {
                "model": one.model,
                "workers": one.workers,
                "method": one.method or max(methods, key=lambda method: methods[method]),
                "printed": one.speed_up,
                "closed_form_no_overlap": low,
                "closed_form_full_overlap": high,
                "simulated_nothing_fitted": named(one, plain),
                "simulated_one_fitted": named(one, fitted),
                "error": round(named(one, fitted) / one.speed_up - 1, 4),
            }
        )
    return rows


def bandwidth_curve(model: SurveyModel) -> dict[str, Any]:
    """Step times on 32 workers, in seconds, by the rate between machines."""
    layers = model.layers(hardware.iteration_s(model))
    rates = [Links(network_bits_per_s=rate * 1e9) for rate in BANDWIDTHS_GBIT_PER_S]
    steps = {
        method: [round(predicted(method, layers, ON_32, CONTENTION, one)[0].step_s, 5) for one in rates]
        for method in METHODS
    }
    return {
        "model": model.title,
        "workers": ON_32,
        "gbit_per_s": BANDWIDTHS_GBIT_PER_S,
        "step_s": steps,
    }


def _beside() -> list[dict[str, Any]]:
    large = bert_large()
    without, _ = closed_forms(hardware.iteration_s(large), hardware.LARGE_ALL_REDUCE_S, ON_4)
    big = bert_large(NVLINK_BATCH)
    alone_s = hardware.iteration_s(big)
    rate = hardware.NVLINK_TIMES_PCIE * hardware.PCIE_BITS_PER_S
    links = Links(pcie_bits_per_s=rate)
    step_s = predicted("mg-wfbp", big.layers(alone_s), ON_4, CONTENTION, links)[0].step_s
    low, high = closed_forms(alone_s, all_reduce_s(big.parameters, ON_4, rate), ON_4)
    return [
        {
            "what": "BERT-Large on 4 GPUs without overlap",
            "printed": PRINTED_WITHOUT_OVERLAP,
            "closed_form": without,
        },
        {
            "what": f"BERT-Large on 4 V100, NVLink, batch {NVLINK_BATCH}, as many operations a second",
            "printed": PRINTED_NVLINK,
            "closed_form_no_overlap": low,
            "closed_form_full_overlap": high,
            "simulated_one_fitted": round(ON_4 * alone_s / step_s, 3),
        },
    ]


def _of_model(model: SurveyModel) -> dict[str, Any]:
    return {
        "title": model.title,
        "parameters": model.parameters,
        "tensors": len(model.tensors),
        "intensity": model.intensity,
        "batch": model.batch,
        "iteration_s": round(hardware.iteration_s(model), 4),
    }


def _constants() -> dict[str, Any]:
    return {
        "startup_s": hardware.STARTUP_S,
        "infiniband_bits_per_s": round(hardware.INFINIBAND_BITS_PER_S),
        "pcie_bits_per_s": round(hardware.PCIE_BITS_PER_S),
        "operations_per_s": round(hardware.LARGE_OPERATIONS / hardware.LARGE_ITERATION_S),
        "backward_part": BACKWARD_PART,
        "merge_and_cut_bytes": SIZES,
    }
