"""Training on whatever a budget of 3 reaches among unequal nodes, most without compute (Figures 7 and 8).

min_slots is 0, so the system asks blindly, as the thesis does, and some rounds reach nobody with compute:
such a round must end at once. The policy is `random` unless another is asked for, since the thesis's four
rounds a workload show no learning; a policy that learns asks the same strong nodes again after the first
rounds.
"""

from typing import Any

from peerloom.experiments.datasets import provide
from peerloom.experiments.live import Request, job_row, live_system, scratch_folder, train
from peerloom.experiments.settings import Settings, Tell
from peerloom.experiments.workloads import WORKLOADS

BUDGET = 3
ROUNDS = 4
POLICY = "random"
# One batch for every round, of so many workers: what is reached isn't known before the job is handed in.
BATCHES = 3


def run(settings: Settings, tell: Tell) -> dict[str, Any]:
    """`settings.rounds` jobs a workload (None: 4, as in the thesis); returns the rows by workload."""
    rounds, policy = settings.rounds or ROUNDS, settings.policy or POLICY
    found: dict[str, Any] = {}
    tell(f"starting {len(settings.slots)} nodes, {sum(map(bool, settings.slots))} of them with compute")
    with (
        scratch_folder() as folder,
        live_system(settings.slots, data_roots=(folder, *settings.data.values())) as client,
    ):
        for name in settings.workloads:
            workload = WORKLOADS[name]
            data = provide(name, settings.data, settings.scale, settings.seed, folder)
            batch, rows = workload.batch * BATCHES, []
            for number in range(1, rounds + 1):
                request = Request(BUDGET, min_slots=0, batch_size=batch, policy=policy, seed=settings.seed)
                rows.append({"round": number, **job_row(train(client, workload, data, request))})
                tell(f"{name}, round {number}: {_told(rows[-1])}")
            found[name] = {
                "title": workload.title,
                "data": data.kind,
                "note": data.note(),
                "batch": batch,
                "rows": rows,
            }
    return {"budget": BUDGET, "policy": policy, "slots": list(settings.slots), "workloads": found}


def composition(row: dict[str, Any]) -> str:
    """The slots of the nodes that were reached as the thesis writes them: "3 and 2", or "none"."""
    given = sorted(row["nodes"].values(), reverse=True)
    return " and ".join(map(str, given)) or "none"


def _told(row: dict[str, Any]) -> str:
    if row["state"] == "no_compute":
        return f"reached no compute, ended after {row['whole_s']} s"
    return f"slots {composition(row)}: {row['training_s']} s of training, {row['whole_s']} s in all"
