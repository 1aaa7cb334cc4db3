"""How often each node was asked for compute, and how often it gave any."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from peerloom.client.types import Job
from peerloom.errors import DataLossError, FailedPreconditionError
from peerloom.experiments.pictures.canvas import bars, canvas, label

_WIDTH_A_NODE_INCHES = 0.45


def draw_selections(jobs: Sequence[Job]) -> Any:
    """Two bars a node, most often asked first. Raises FailedPreconditionError when nobody was asked yet."""
    asked = Counter(answer.name for job in jobs for answer in job.answers)
    gave = Counter(answer.name for job in jobs for answer in job.answers if answer.accepted)
    if not asked:
        raise FailedPreconditionError(
            "No job has asked a node for compute yet. Run one: peerloom train digits", reason="NO_SELECTIONS"
        )
    names = [name for name, _ in sorted(asked.items(), key=lambda item: (-item[1], item[0]))]
    figure, (axis,) = canvas(size=(max(5.0, 2.0 + _WIDTH_A_NODE_INCHES * len(names)), 3.8))
    bars(axis, names, {"asked": [asked[n] for n in names], "gave slots": [gave[n] for n in names]})
    label(axis, f"Whom {len(jobs):,} jobs asked", "node (name)", "times (count)")
    axis.tick_params(axis="x", labelrotation=60 if len(names) > 8 else 0)
    axis.yaxis.get_major_locator().set_params(integer=True)
    axis.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def draw_hit_rate(result: Mapping[str, Any]) -> Any:
    """The share of requests that hit compute, and of rounds that reached any, against the budget.

    `result` is one of the experiment `selection`; raises DataLossError for another.
    """
    try:
        rows = result["rows"]
        budgets = [row["budget"] for row in rows]
        requests = [100 * sum(row["hits"].values()) / row["requests"] for row in rows]
        rounds = [100 * row["reached"] / result["rounds"] for row in rows]
        policy = result["policy"]
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise DataLossError(
            f"This isn't a result of the experiment selection ({type(error).__name__}: {error}). Make one "
            "with: peerloom experiment selection"
        ) from None
    figure, (axis,) = canvas()
    axis.plot(budgets, rounds, "o-", color="#0b3c5d", label="rounds that reached compute")
    axis.plot(budgets, requests, "s--", color="#c25b12", label="requests that hit compute")
    label(axis, f"Hit rate against budget, policy {policy}", "budget (requests a round)", "hits (%)")
    axis.set_xticks(budgets)
    axis.set_ylim(0, 105)
    axis.legend(fontsize=8, frameon=False)
    return figure
