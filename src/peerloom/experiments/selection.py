"""50 rounds of asking for each budget, and whom they reached (the thesis's Figure 6).

Each run of 50 has a fresh system of its own, so that no belief comes from another. The asking node is the
first; it isn't asked. Before the rounds every other node is given a model once: the thesis set its nodes'
counts in advance too, and the printed formula would otherwise rank a node that refused once, since its uptime
counts from then on, above all that were never asked. Who is longest online is believed in most then, so where
the nodes with compute stand in the order of starting is drawn by chance; each keeps its name.
"""

import asyncio
import secrets
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from peerloom.experiments import thesis
from peerloom.experiments.asking import MODEL_BYTES, Asker, SelectionRound
from peerloom.experiments.live import live_system, scratch_folder
from peerloom.experiments.repeats import repeats
from peerloom.experiments.settings import Settings, Tell

POLICY = "thesis"


def run(settings: Settings, tell: Tell) -> dict[str, Any]:
    """`settings.systems` runs of `settings.rounds` rounds (None: 50) for each budget; a row each.

    `settings.repeats` more follow in the simulator, if the nodes are the thesis's.
    """
    rounds, policy = settings.rounds or thesis.ROUNDS, settings.policy or POLICY
    rows = []
    for budget in settings.budgets:
        runs = []
        for number in range(settings.systems):
            tell(f"budget {budget}: starting {len(settings.slots)} nodes")
            places = placement(len(settings.slots), (settings.seed, budget, number))
            done = _run_once(settings, places, budget, rounds, policy)
            runs.append(summary(done, settings.slots, places))
            tell(f"budget {budget}: {runs[-1]['reached']} of {rounds} rounds reached compute")
        rows.append({"budget": budget, **means(runs), "runs": runs})
    simulated = []
    if settings.repeats and settings.slots == thesis.slots_of_nodes():
        tell(f"repeating it {settings.repeats:,} times in the simulator")
        simulated = repeats(settings.budgets, rounds, policy, settings.seed, settings.repeats)
    return {
        "policy": policy,
        "rounds": rounds,
        "systems": settings.systems,
        "slots": list(settings.slots),
        "rows": rows,
        "repeats": settings.repeats,
        "simulated": simulated,
    }


def placement(nodes: int, seed: Sequence[int]) -> list[int]:
    """Which node of the settings (from 0) is started at each place; the first, who asks, stays the first."""
    rest = np.random.default_rng(list(seed)).permutation(np.arange(1, nodes))
    return [0, *rest.tolist()]


def _run_once(
    settings: Settings, places: Sequence[int], budget: int, rounds: int, policy: str
) -> list[SelectionRound]:
    slots = [settings.slots[node] for node in places]
    with scratch_folder() as folder, live_system(slots) as client:
        model = folder / "model"
        model.write_bytes(secrets.token_bytes(MODEL_BYTES))
        return asyncio.run(_ask(client.address, budget, rounds, policy, settings.seed, model))


async def _ask(
    registry: str, budget: int, rounds: int, policy: str, seed: int, model: Path
) -> list[SelectionRound]:
    asker = Asker(registry, "node-1", policy)
    try:
        await asker.give_models(model)
        return [await asker.ask(budget, seed + number) for number in range(rounds)]
    finally:
        await asker.close()


def summary(rounds: Sequence[SelectionRound], slots: Sequence[int], places: Sequence[int]) -> dict[str, Any]:
    """Hits of each node with compute, rounds that reached any and the first of them (None: no round did)."""
    hits = Counter(name for one in rounds for name in one.given)
    name_at = {node: f"node-{place + 1}" for place, node in enumerate(places)}
    return {
        "hits": {f"node-{node + 1}": hits[name_at[node]] for node, count in enumerate(slots) if count},
        "reached": sum(one.reached for one in rounds),
        "first_reached": next((number for number, one in enumerate(rounds, start=1) if one.reached), None),
        "requests": sum(len(one.asked) for one in rounds),
        "slots": sum(sum(one.given.values()) for one in rounds),
        "median_round_s": round(statistics.median(one.took_s for one in rounds), 4),
    }


def means(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The runs' means; `reached_least` and `reached_most` are their range."""
    reached = [one["reached"] for one in runs]
    names = runs[0]["hits"]
    return {
        "hits": {name: round(statistics.mean(one["hits"][name] for one in runs), 1) for name in names},
        "reached": round(statistics.mean(reached), 1),
        "reached_least": min(reached),
        "reached_most": max(reached),
        "requests": round(statistics.mean(one["requests"] for one in runs), 1),
        "slots_a_request": round(sum(one["slots"] for one in runs) / sum(one["requests"] for one in runs), 2),
    }
