"""What must hold after a run: pure checks of what was seen, each broken promise a sentence."""

from collections.abc import Mapping, Sequence
from typing import Any

BATCHES_PER_EPOCH, TRAINING_SAMPLES = 45, 1437  # of the digits
GROWTH_ALLOWED_BYTES = 64 * 2**20
# Losses of one seed differ by the order of sums alone. At the rate of these jobs, parameters that are
# disturbed by a millionth move no epoch's loss by more than 0.0004; at the task's own rate by up to 0.034,
# and comparing says nothing.
LEARNING_RATE, LOSS_TOLERANCE = 0.01, 0.004
# The ways to synchronise that a run draws from. A codec that loses anything would move the losses by more
# than faults may, and a residual that is lost with its worker by chance, so none of those is among them.
SYNC_METHODS = (
    "wfbp-a2a",
    "bsp-a2a",
    "schedule=wfbp,topology=direct",
    "schedule=bsp,topology=direct",
    "wfbp-ps",
    "bsp-ps",
    "schedule=wfbp,topology=ps:1",
    "schedule=wfbp,topology=ps:node-2",
    "schedule=merged:4096,topology=ring",
    "schedule=merged:4096,topology=direct",
    "schedule=cut:4096,topology=direct",
    "schedule=cut:4096,topology=ps",
    "schedule=wfbp,topology=doubling",
    "schedule=wfbp,topology=hierarchy",
    "schedule=merged:4096,topology=doubling",
    "auto",
)
# What a round of local steps makes of the parameters depends on who trains, and which parts a step takes on
# who is there first, so faults do move these losses; all else must hold.
ROUND_METHODS = (
    "period=4",
    "period=7,outer=nesterov:1.0:0.6,codec=int8",
    "period=5,delay=1,codec=fp16",
    "period=6,groups=2:2",
    "ssp:2",
    "asp,late=weighted",
    "backup=0.7",
)
# Nor are losses compared of these, whose residuals a fault takes along.
LOSSY_METHODS = (
    "codec=powersgd:2",
    "topology=direct,codec=powersgd:4",
    "codec=int8,codec_from=2048",
    "auto,quality=relaxed",
)

# The ways to divide a model that a run draws from. Each makes the training of one process, but for rounding,
# whoever is lost: from living states, from shadows, or from a checkpoint where there are none.
PLANS = (
    "pipeline=3",
    "pipeline=2,widths=2/1,micro_batches=6,order=gpipe",
    "pipeline=3,shadow=off",
    "pipeline=3,order=zb-h2",
    "sharded=3",
    "sharded=2,shadow=off",
    "tensor=3",
    "tensor=2,micro_batches=2,shadow=off",
    "auto",
)


def check_job(job: Mapping[str, Any], events: Sequence[Mapping[str, Any]], epochs: int) -> list[str]:
    """The promises about a job that has ended: its record as JSON, and its events."""
    broken = []
    if job["state"] != "succeeded":
        # That the final parameters are the same on all workers is a condition of success.
        broken.append(f"{job['id']} ended as {job['state']}: {job['reason']}")
    if [event["sequence"] for event in events] != list(range(1, len(events) + 1)):
        broken.append(f"the watch of {job['id']} has a gap or a repeat")
    steps = [event["step"] for event in events if event["event"] == "step_committed"]
    wanted = list(range(1, epochs * BATCHES_PER_EPOCH + 1))
    ledger = job["ledger"] or {"is_exact": False, "verdict": "there is none", "discarded_samples": 0}
    if not ledger["is_exact"]:
        broken.append(f"the ledger of {job['id']}: {ledger['verdict']}")
    if not ledger["discarded_samples"] and steps != wanted:
        broken.append(f"the committed steps of {job['id']} are not 1 to {len(wanted)}: {len(steps)} of them")
    return broken


def check_losses(found: Mapping[int, float], undisturbed: Sequence[float]) -> list[str]:
    """Mean losses by epoch, from 1, beside an undisturbed run's of the same seed at `LEARNING_RATE`."""
    return [
        f"the loss of epoch {epoch} is {loss:.4f}, and undisturbed it is {undisturbed[epoch - 1]:.4f}"
        for epoch, loss in found.items()
        if not abs(loss - undisturbed[epoch - 1]) <= LOSS_TOLERANCE
    ]


def check_memory(before: Mapping[int, int], after: Mapping[int, int], names: Mapping[int, str]) -> list[str]:
    """Resident bytes by pid, of the processes that lived from the first job's end to the last one's."""
    return [
        f"{names[pid]} (pid {pid}) has grown by {(after[pid] - before[pid]) / 2**20:.0f} MB"
        for pid in sorted(before.keys() & after.keys())
        if after[pid] - before[pid] > GROWTH_ALLOWED_BYTES
    ]
