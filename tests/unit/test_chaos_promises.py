"""What `make chaos` holds a job to."""

from math import nan

import pytest

from benchmarks.chaos.jobs import drawn_way
from benchmarks.chaos.promises import LOSS_TOLERANCE, PLANS, SYNC_METHODS, check_job, check_losses
from peerloom.kit.parallel_plan import asked_plan

UNDISTURBED = [2.0, 0.5, 0.1]


def test_losses_within_the_tolerance_keep_the_promise() -> None:
    found = {1: 2.0 + 0.9 * LOSS_TOLERANCE, 2: 0.5 - 0.9 * LOSS_TOLERANCE, 3: 0.1}
    assert check_losses(found, UNDISTURBED) == []


@pytest.mark.parametrize("loss", [0.5 + 1.1 * LOSS_TOLERANCE, 0.5 - 1.1 * LOSS_TOLERANCE, nan])
def test_a_loss_above_below_or_not_a_number_breaks_it(loss: float) -> None:
    [broken] = check_losses({1: 2.0, 2: loss}, UNDISTURBED)
    assert broken.startswith("the loss of epoch 2 is")


@pytest.mark.parametrize(
    ("sync", "steps"), [("bsp-a2a", 90), ("auto,quality=exact", 90), ("period=4,codec=int8", 90)]
)
def test_a_job_has_made_each_step_once(sync: str, steps: int) -> None:
    """Two epochs of 45 batches."""
    ledger = {"is_exact": True, "verdict": "exact", "discarded_samples": 0}
    job = {"id": "job-1", "state": "succeeded", "reason": "", "spec": {"sync": sync}, "ledger": ledger}
    made = [{"event": "step_committed", "sequence": n, "step": n} for n in range(1, steps + 1)]
    assert check_job(job, made, epochs=2) == []
    [broken] = check_job(job, made[:-1], epochs=2)
    assert broken == f"the committed steps of job-1 are not 1 to {steps}: {steps - 1} of them"


def test_every_plan_and_method_is_drawn_by_some_seed() -> None:
    drawn = [drawn_way(seed) for seed in range(500)]
    plans = {how[1] for how, _ in drawn if how[0] == "--plan"}
    assert plans == set(PLANS)
    assert all(is_exact for how, is_exact in drawn if how[0] == "--plan")
    assert {how[1] for how, is_exact in drawn if is_exact and how[0] == "--sync"} == set(SYNC_METHODS)
    assert all(asked_plan("plan", plan) for plan in plans)
    assert drawn_way(7) == drawn_way(7)
