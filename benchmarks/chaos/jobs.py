"""Jobs one after the other, as a user would run them from the command line; each is held to its promises."""

import json
import random
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.chaos.faults import INTERRUPTING
from benchmarks.chaos.places import Place
from benchmarks.chaos.promises import (
    LEARNING_RATE,
    LOSSY_METHODS,
    PLANS,
    ROUND_METHODS,
    SYNC_METHODS,
    check_job,
    check_losses,
)
from benchmarks.chaos.undisturbed import losses_of
from peerloom.client.types.jobs import FINAL_STATES

EPOCHS = 15  # fewer: jobs see no fault; more: the last one goes on for long after the last fault
TASK = "digits"
PLANNED = 0.3  # of the jobs divide the model
JOB_LIMIT_S = 600.0


def drawn_way(seed: int) -> tuple[list[str], bool]:
    """How a job trains, as arguments, by its seed; and whether faults leave its losses as they are."""
    chance = random.Random(seed)
    if chance.random() < PLANNED:
        return ["--plan", chance.choice(PLANS)], True
    method = chance.choice(SYNC_METHODS + ROUND_METHODS + LOSSY_METHODS)
    return ["--sync", method], method in SYNC_METHODS


class Jobs:
    """What was trained so far; job n has the seed `seed` + n. `broken` has the promises that weren't kept."""

    def __init__(self, place: Place, seed: int) -> None:
        self.broken: list[str] = []
        self.count = 0
        self.newest = ""  # the id of the last one that has a model
        self._place, self._seed = place, seed
        self._losses: list[tuple[int, dict[int, float]]] = []  # of each job: its seed, mean losses by epoch
        self._compared = 0  # of these

    def train(self) -> None:
        """One more job, from its submission to its end."""
        seed = self._seed + self.count
        asked = ["--requests", "5", "--epochs", str(EPOCHS), "--max-workers", "6", "--seed", str(seed)]
        how, is_exact = drawn_way(seed)
        asked += ["--learning-rate", str(LEARNING_RATE), *how]
        job_id = self.ask(["train", TASK, *asked, "--detach", "-o", "json"])["id"]
        events = self._watch(job_id)
        job = self.ask(["jobs", "show", job_id, "-o", "json"])
        self.broken += check_job(job, events, EPOCHS)
        # The last word about an epoch counts: one whose steps were lost is done again.
        losses = {event["epoch"]: event["loss"] for event in events if event["event"] == "epoch_finished"}
        if job["state"] == "succeeded":
            self.newest = job_id
            self._losses += [(seed, losses)] if is_exact else []
        self.count += 1
        formed = sum(event["event"] == "generation_formed" for event in events)
        told = f"{job['state']} ({job['reason']}), {formed} generations by {' '.join(how)}"
        print(f"{job_id}: {told}", file=sys.stderr)

    def check_losses(self) -> None:
        """Compares the losses of jobs that weren't compared yet with those of undisturbed runs."""
        began_s, losses = time.monotonic(), self._losses[self._compared :]
        for seed, found in losses:
            self.broken += check_losses(found, losses_of(TASK, EPOCHS, LEARNING_RATE, seed))
            self._compared += 1
        if losses:
            print(f"undisturbed runs took {time.monotonic() - began_s:.0f} s", file=sys.stderr)

    def check_interruptions(self, struck: Mapping[str, int]) -> None:
        """At most as many as there were faults, by kind, that cause one."""
        nodes = self.ask(["nodes", "list", "-o", "json"])
        shown = [self.ask(["nodes", "show", node["name"], "-o", "json"]) for node in nodes]
        found = sum(session["interrupted"] for node in shown for session in node["sessions"])
        allowed = sum(struck[kind] for kind in INTERRUPTING)
        if found > allowed:
            self.broken.append(f"{found} interruptions were counted, and only {allowed} faults cause one")

    def ask(self, arguments: Sequence[str]) -> Any:
        """What a command answers in JSON. Raises SystemExit when it fails ten times."""
        # A coordinator may be away just now, for longer than a command waits.
        for _ in range(10):
            output, _ = self._place.command(arguments).communicate()
            if output.strip():
                return json.loads(output)
        raise SystemExit(f"peerloom {' '.join(arguments)} failed ten times; the seed is {self._seed}")

    def _watch(self, job_id: str) -> list[dict[str, Any]]:
        """All events; a command that begins while the trainer is away ends at once, and the next goes on."""
        events: list[dict[str, Any]] = []
        deadline_s, is_over = time.monotonic() + JOB_LIMIT_S, False
        while not is_over and time.monotonic() < deadline_s:
            after = str(events[-1]["sequence"] if events else 0)
            process = self._place.command(["jobs", "watch", job_id, "--after", after, "-o", "json"])
            late = threading.Timer(max(0.0, deadline_s - time.monotonic()), process.kill)
            late.start()
            assert process.stdout is not None
            events += [json.loads(line) for line in process.stdout]
            process.wait()
            late.cancel()
            is_over = any(event.get("state") in FINAL_STATES for event in events)
        return events
