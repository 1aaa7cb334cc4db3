"""`make chaos`: CHAOS_SEED chooses the faults and each job's sync, CHAOS_SECONDS how long they go on."""

import json
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.chaos.faults import INTERRUPTING, Fault, Striker, draw
from benchmarks.chaos.places import Place, open_place
from benchmarks.chaos.promises import (
    LEARNING_RATE,
    LOSSY_METHODS,
    ROUND_METHODS,
    SYNC_METHODS,
    check_job,
    check_losses,
    check_memory,
)
from benchmarks.chaos.system import Parts
from benchmarks.chaos.undisturbed import losses_of
from peerloom.client.types.jobs import FINAL_STATES

EPOCHS = 15  # fewer: jobs see no fault; more: the last one goes on for long after the last fault
_SHOWN = 800  # characters before a traceback, and half of those after it
TASK = "digits"
JOB_LIMIT_S = 600.0
ENDS_WITHIN_S = 15.0


def main() -> int:
    """Runs the faults and the checks; 0 if every promise held."""
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    seconds = float(os.environ.get("CHAOS_SECONDS") or "120")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was built is taken down
    print(f"chaos with seed {seed} for {seconds:.0f} s", file=sys.stderr)
    # Often enough that a job survives the death of all its workers at nearly any time.
    os.environ.setdefault("PEERLOOM_TRAINER_CHECKPOINT_INTERVAL_S", "1")
    with tempfile.TemporaryDirectory(prefix="peerloom-chaos-") as folder:
        run = Run(Path(folder), seed, seconds)
        broken = run.go()
        kept = os.environ.get("CHAOS_KEEP")
        if broken and kept:
            Path(folder).rename(kept)
            Path(folder).mkdir()
    for promise in broken:
        print(f"BROKEN: {promise}")
    print(f"{'FAILED' if broken else 'ok'}: CHAOS_SEED={seed} CHAOS_SECONDS={seconds:.0f} replays the faults")
    return 1 if broken else 0


class Run:
    """One run: jobs one after the other under the drawn faults, and what was broken."""

    def __init__(self, folder: Path, seed: int, seconds: float) -> None:
        self._folder, self._seed, self._seconds = folder, seed, seconds
        self._parts = Parts()
        self._over = threading.Event()
        self._broken: list[str] = []
        self._memory: list[dict[int, int]] = []
        self._names: dict[int, str] = {}
        self._losses: list[tuple[int, dict[int, float]]] = []  # of each job: its seed, mean losses by epoch

    def go(self) -> list[str]:
        """Returns the promises that were broken."""
        self._parts.mark()
        with open_place(self._folder) as place:
            faults = draw(self._seed, self._seconds, place.can_cut)
            striker = Striker(place, self._parts)
            striking = threading.Thread(target=self._strike, args=(striker, faults))
            striking.start()
            while striking.is_alive() or not self._memory:
                self._train(place)
            striking.join()
            self._check_interruptions(place, striker)
            addresses = self._parts.addresses() if not place.can_cut else set()
            print(f"struck: {dict(striker.struck)}; {len(self._losses)} jobs", file=sys.stderr)
        self._check_what_is_left(addresses)
        self._check_logs()
        self._check_losses()
        if len(self._memory) > 1:
            self._broken += check_memory(self._memory[0], self._memory[-1], self._names)
        return self._broken

    def _strike(self, striker: Striker, faults: Sequence[Fault]) -> None:
        for fault in faults:
            if self._over.wait(fault.pause_s):
                break
            striker.strike(fault)
        striker.end()

    def _train(self, place: Place) -> None:
        seed = self._seed + len(self._memory)
        asked = ["--requests", "5", "--epochs", str(EPOCHS), "--max-workers", "6", "--seed", str(seed)]
        method = random.Random(seed).choice(SYNC_METHODS + ROUND_METHODS + LOSSY_METHODS)
        asked += ["--learning-rate", str(LEARNING_RATE), "--sync", method]
        submitted = self._ask(place, ["train", TASK, *asked, "--detach", "-o", "json"])
        job_id = submitted["id"]
        events = self._watch(place, job_id)
        job = self._ask(place, ["jobs", "show", job_id, "-o", "json"])
        self._broken += check_job(job, events, EPOCHS)
        # The last word about an epoch counts: one whose steps were lost is done again.
        losses = {event["epoch"]: event["loss"] for event in events if event["event"] == "epoch_finished"}
        if job["state"] == "succeeded" and method in SYNC_METHODS:
            self._losses.append((seed, losses))
        self._remember_memory()
        formed = sum(event["event"] == "generation_formed" for event in events)
        told = f"{job['state']} ({job['reason']}), {formed} generations by {method}"
        print(f"{job_id}: {told}", file=sys.stderr)

    def _watch(self, place: Place, job_id: str) -> list[dict[str, Any]]:
        """All events; a command that begins while the trainer is away ends at once, and the next goes on."""
        events: list[dict[str, Any]] = []
        deadline_s, is_over = time.monotonic() + JOB_LIMIT_S, False
        while not is_over and time.monotonic() < deadline_s:
            after = str(events[-1]["sequence"] if events else 0)
            process = place.command(["jobs", "watch", job_id, "--after", after, "-o", "json"])
            late = threading.Timer(max(0.0, deadline_s - time.monotonic()), process.kill)
            late.start()
            assert process.stdout is not None
            events += [json.loads(line) for line in process.stdout]
            process.wait()
            late.cancel()
            is_over = any(event.get("state") in FINAL_STATES for event in events)
        return events

    def _ask(self, place: Place, arguments: Sequence[str]) -> Any:
        # A coordinator may be away just now, for longer than a command waits.
        for _ in range(10):
            process = place.command(arguments)
            output, _ = process.communicate()
            if output.strip():
                return json.loads(output)
        self._over.set()
        raise SystemExit(f"peerloom {' '.join(arguments)} failed ten times; CHAOS_SEED={self._seed}")

    def _remember_memory(self) -> None:
        found = {}
        for part in self._parts.find():
            if not part.is_worker:
                found[part.process.pid] = part.process.memory_info().rss
                self._names[part.process.pid] = part.name
        self._memory.append(found)

    def _check_interruptions(self, place: Place, striker: Striker) -> None:
        nodes = self._ask(place, ["nodes", "list", "-o", "json"])
        shown = [self._ask(place, ["nodes", "show", node["name"], "-o", "json"]) for node in nodes]
        found = sum(session["interrupted"] for node in shown for session in node["sessions"])
        allowed = sum(striker.struck[kind] for kind in INTERRUPTING)
        if found > allowed:
            self._broken.append(f"{found} interruptions were counted, and only {allowed} faults cause one")

    def _check_what_is_left(self, addresses: set[tuple[str, int]]) -> None:
        _, alive = psutil.wait_procs(self._parts.processes(), timeout=ENDS_WITHIN_S)
        self._broken += [f"process {process.pid} is left: {process.name()}" for process in alive]
        for host, port in sorted(addresses):
            with socket.socket() as probe:
                if probe.connect_ex((host, port)) == 0:
                    self._broken.append(f"somebody still listens at {host}:{port}")

    def _check_logs(self) -> None:
        for log in self._folder.rglob("*.log"):
            before, found, after = log.read_text(errors="replace").partition("Traceback")
            if found:
                excerpt = f"{before[-_SHOWN:]}{found}{after[: 2 * _SHOWN]}"
                self._broken.append(f"a traceback in {log.relative_to(self._folder)}:\n{excerpt}")

    def _check_losses(self) -> None:
        if not self._losses:
            return
        began_s = time.monotonic()
        for seed, found in self._losses:
            self._broken += check_losses(found, losses_of(TASK, EPOCHS, LEARNING_RATE, seed))
        print(f"undisturbed runs took {time.monotonic() - began_s:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
