"""Training on whatever a budget of 3 reaches, over an emulated network, with emulated compute (Figures 7, 8).

As `heterogeneous` asks: blindly, by the policy `random`, with one batch for every round. All devices are
alike, as the thesis's were: its nodes differ in how many they have. Beside the rounds stands one device of
one node alone.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from peerloom.experiments import heterogeneous
from peerloom.experiments.emulated_jobs import EmulatedJob, Row, behind, is_faithful, warm_up
from peerloom.experiments.emulated_networks import network_of
from peerloom.experiments.emulation import thesis_gpu, training_steps
from peerloom.experiments.network_scaling import STEPS, interval, shown
from peerloom.experiments.settings import Settings, Tell
from peerloom.experiments.workloads import WORKLOADS

ROUNDS = 12
ALONE = 5
ALONE_KIND = "one device alone"


def run(settings: Settings, tell: Tell) -> dict[str, Any]:
    """`settings.rounds` rounds a workload (None: 12) over the first network, and five of one device.

    Raises InvalidArgumentError for a network that ns-3 can't carry, and what Testbed raises.
    """
    network, policy = network_of(settings.networks[0]), settings.policy or heterogeneous.POLICY
    nodes = len(settings.slots) + 1
    network.check(settings.slots, nodes)
    device = thesis_gpu().slower(settings.slowdown)
    found: dict[str, Any] = {}
    able = sum(map(bool, settings.slots))
    tell(f"starting {len(settings.slots)} nodes behind {network.name}, {able} of them with compute")
    with behind(network, settings.slots, nodes) as ask:
        warm_up(ask, able)
        for name in settings.workloads:
            batch = WORKLOADS[name].batch * heterogeneous.BATCHES
            each = (batch, device.sample_s(name), device.step_s, STEPS)
            blind = EmulatedJob(
                name, heterogeneous.BUDGET, None, *each, min_slots=0, policy=policy, seed=settings.seed
            )
            steps = training_steps(WORKLOADS[name], batch, settings.slowdown)
            rows: list[Row] = []
            for number in range(1, (settings.rounds or ROUNDS) + 1):
                rows.append(round_row(ask(blind), steps, number))
                tell(f"{name}, round {number}: {_told(rows[-1])}")
            alone = EmulatedJob(name, 1, 1, *each, policy=policy, seed=settings.seed)
            for number in range(1, ALONE + 1):
                rows.append({**round_row(ask(alone), steps, number), "kind": ALONE_KIND})
                tell(f"{name}, alone, {number}: {_told(rows[-1])}")
            found[name] = {
                "title": WORKLOADS[name].title,
                "batch": batch,
                "rows": rows,
                "kinds": kinds(rows),
            }
            for line in table(name, found[name]["kinds"]):
                tell(line)
    return {
        "budget": heterogeneous.BUDGET,
        "policy": policy,
        "slots": list(settings.slots),
        "network": network.name,
        "device": asdict(device),
        "slowdown": settings.slowdown,
        "workloads": found,
    }


def round_row(row: Row, steps: float, number: int) -> Row:
    """A round with what it reached, "3 and 2" or "none", and the seconds of a training of so many steps."""
    training_s = steps * row["step_s"] if "step_s" in row else None
    return {"round": number, "kind": heterogeneous.composition(row), "training_s": training_s, **row}


def kinds(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rounds by what they reached, the fewest devices first: their number, and their mean with interval.

    `seconds` is the training's; of rounds that reached none, how long their answer took.
    """
    found = []
    for kind in sorted({row["kind"] for row in rows}, key=_devices):
        of_kind = [row for row in rows if row["kind"] == kind]
        times = [row["whole_s"] if row["training_s"] is None else row["training_s"] for row in of_kind]
        found.append(
            {
                "kind": kind,
                "devices": of_kind[0]["workers"],
                "rounds": len(of_kind),
                "seconds": interval(times),
                "faithful": all(map(is_faithful, of_kind)),
            }
        )
    return found


def _devices(kind: str) -> tuple[int, str]:
    counts = [int(word) for word in kind.split(" and ") if word.isdecimal()]
    return sum(counts) or (1 if kind == ALONE_KIND else 0), kind


def table(name: str, kinds_of: Sequence[dict[str, Any]]) -> list[str]:
    """The kinds as Markdown: what a page shows, with an asterisk where the emulator fell behind."""
    return [
        f"| {name} | {one['kind']} | {one['rounds']} | {shown(one['seconds'], digits=2)}"
        f"{'' if one['faithful'] else '*'} |"
        for one in kinds_of
    ]


def _told(row: Row) -> str:
    if row["training_s"] is None:
        return f"reached no compute, ended after {row['whole_s']} s"
    return f"{row['kind']}: {row['training_s']:.1f} s of training"
