"""Training beside workers that lie: each rule against each attack, with up to a third of the owners hostile.

The workers are rehearsed in processes of their own, which use the very rules of a real training (torch is
loaded only there). Every owner has one worker, and their shares of the batch are unequal, as 1 to 2 to 3 to
4. The rules are tried with four owners too, where a real training would only refuse what isn't finite. One
row has audits besides: liars who know of them are honest in a generation's first step only.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import fmean, median
from typing import Any

from peerloom.errors import InternalError
from peerloom.experiments.settings import Settings, Tell
from peerloom.kit.robust_rules import AUTO, CENTRED_CLIPPING, KRUM, MEDIAN, OFF, TRIMMED_MEAN

WORKERS = (4, 8, 16)
RULES = (OFF, TRIMMED_MEAN, MEDIAN, KRUM, CENTRED_CLIPPING, AUTO)
AUDITED = f"{AUTO}, audits"  # what a job with `--robust auto` does from five owners on
NO_ATTACK = "none"
ATTACKS = (NO_ATTACK, "sign flip", "scaling", "noise", "label flip", "ALIE", "inner product")
SEEDS = 5
PARAMETERS = 2410  # of the rehearsed model, 64 x 32 x 10
_COMMAND = (sys.executable, "-m", "peerloom.worker.sync.robust.rehearsal")


def run(settings: Settings, tell: Tell) -> dict[str, Any]:
    """`settings.rounds` seeds of each combination (None: 5); returns a row for each."""
    asked = list(_combinations(settings))
    processes = os.cpu_count() or 1
    tell(f"{len(asked)} trainings in {processes} processes")
    with ThreadPoolExecutor(processes) as pool:
        parts = pool.map(_rehearse, [asked[first::processes] for first in range(processes)])
        answers = [answer for part in parts for answer in part]
    rows = list(rows_of(answers))
    for row in rows:
        if row["rule"] == AUTO:
            tell(f"{row['workers']} owners, {row['attack']}: auto {fmean(row['accuracies']):.3f}")
    return {"rows": rows, "sent_bytes": {str(workers): sent_bytes(workers) for workers in WORKERS}}


def hostile_of(workers: int, attack: str) -> int:
    """As many as the rules are set for, less than a third; none without an attack."""
    return 0 if attack == NO_ATTACK else (workers - 1) // 3


def sent_bytes(workers: int) -> dict[str, int]:
    """Bytes that a worker sends a step for the gradient, float32: a ring's, and for the rules' distances."""
    ring = round(2 * (workers - 1) / workers * 4 * PARAMETERS)
    return {"gradient": ring, "distances": (workers - 1) * 8 * workers**2}


def rows_of(answers: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One row a combination, its accuracies in the order of the seeds."""
    for workers in WORKERS:
        for attack in ATTACKS:
            for rule in (*RULES, AUDITED):
                key = (workers, attack, rule)
                found = [one for one in answers if (one["workers"], one["attack"], _name_of(one)) == key]
                found.sort(key=lambda one: one["seed"])
                yield {
                    "workers": workers,
                    "hostile": hostile_of(workers, attack),
                    "attack": attack,
                    "rule": rule,
                    "accuracies": [round(one["accuracy"], 4) for one in found],
                    "median_rule_ms": round(1e3 * median(one["rule_s"] for one in found), 3),
                    **({"audits": _audits_of(found)} if rule == AUDITED else {}),
                }


def _name_of(answer: dict[str, Any]) -> str:
    return AUDITED if answer.get("audits") else str(answer["rule"])


def _audits_of(found: list[dict[str, Any]]) -> dict[str, Any]:
    """What came of audits over all seeds; steps of the hostile, in order, who were found."""
    return {
        "accused_at": sorted(step for one in found for step in one["accused_at"] if step is not None),
        "dismissed_at": sorted(step for one in found for step in one["dismissed_at"] if step is not None),
        "honest_accused": sum(one["honest_accused"] for one in found),
        "honest_dismissed": sum(one["honest_dismissed"] for one in found),
        "audited_steps": round(fmean(one["audited_steps"] for one in found), 3),
    }


def _combinations(settings: Settings) -> Iterator[dict[str, Any]]:
    for seed in range(settings.rounds or SEEDS):
        for workers in WORKERS:
            for attack in ATTACKS:
                for rule in (*RULES, AUDITED):
                    yield {
                        "workers": workers,
                        "hostile": hostile_of(workers, attack),
                        "rule": AUTO if rule == AUDITED else rule,
                        "audits": rule == AUDITED,
                        "attack": attack,
                        "seed": settings.seed + seed,
                    }


def _rehearse(asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    lines = "\n".join(map(json.dumps, asked)) + "\n"
    done = subprocess.run(_COMMAND, input=lines, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InternalError(f"A rehearsal ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]
