"""What is kept of the throughput under one fault every 30 s: windows without a fault and with, in turn."""

import time

from benchmarks.measure import Goal, Measurement, measurement
from benchmarks.recovery.running_job import process_of, running_job
from benchmarks.recovery.small_model import WORKERS


def run(quick: bool) -> list[Measurement]:
    rounds, window_s = (1, 6.0) if quick else (3, 30.0)
    kept = []
    with running_job() as running:
        for number in range(rounds):
            steps = []
            for kills in (False, True):
                worker, _ = running.wait_until_full().workers[number % WORKERS]
                begin_s = time.time()
                if kills:
                    process_of(worker).kill()
                time.sleep(window_s)
                steps.append(running.steps_between(begin_s, begin_s + window_s))
            kept.append(steps[1] / steps[0])
            print(f"   {steps[0]} steps without a fault, {steps[1]} with one", flush=True)
    goal = Goal(0.977, at_least=True)
    return [
        measurement(f"throughput kept under one killed worker each {window_s:.0f} s", "of 1", kept, goal=goal)
    ]
