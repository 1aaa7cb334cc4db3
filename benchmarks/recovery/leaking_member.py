"""A process that runs one generation after the other as a worker does; lines of JSON in and out.

{"join": [generation, rank, world_size]} is answered once the generation was left, {"count": true}
with descriptors, threads and megabytes, when what the past generations left behind has ended.
The members meet through the hub at argv[1].
"""

import gc
import json
import os
import sys
import threading

import psutil
import torch

from benchmarks.entry_hub import HubEntries
from benchmarks.recovery.small_model import BATCH
from benchmarks.recovery.small_task import Small
from peerloom.kit.logs import configure_logs
from peerloom.v1.trainer_pb2 import ConfigureGeneration, JobSpec
from peerloom.worker.auditing import Auditor
from peerloom.worker.balance import Balance
from peerloom.worker.group.process_group import Group
from peerloom.worker.group.waits import GenerationBrokenError
from peerloom.worker.joining.participants import Joining
from peerloom.worker.loop import train_generation
from peerloom.worker.training import Training

STEPS = 2
LIMIT_S = 60.0


def main() -> None:
    torch.set_num_threads(1)
    configure_logs("worker")  # standard output is for answers
    spec = JobSpec(epochs=1_000_000, batch_size=BATCH, learning_rate=0.001, seed=7)
    training = Training(Small(), spec, torch.device("cpu"))
    entries = HubEntries(sys.argv[1])
    for line in sys.stdin:
        command = json.loads(line)
        answer = count() if "count" in command else join(training, entries, *command["join"])
        print(json.dumps(answer), flush=True)


def join(training: Training, entries: HubEntries, generation: int, rank: int, world_size: int) -> int:
    """Two steps in a generation, which the trainer's word then breaks from another thread."""
    config = ConfigureGeneration(
        generation=generation,
        rank=rank,
        world_size=world_size,
        collective_timeout_s=LIMIT_S,
    )
    group, first = Group(config, torch.device("cpu"), entries.of(generation)), training.state.step

    def on_step(step: int) -> None:
        if step == first + STEPS:
            threading.Thread(target=group.break_from_outside, args=("that was all",)).start()

    try:
        group.form()
        joining, balance = Joining(group, training.state), Balance([1] * world_size, is_fixed=True)
        train_generation(
            training, group, joining, balance, lambda progress: None, on_step, Auditor(lambda message: None)
        )
    except GenerationBrokenError:
        group.close()
    # The others may have got one step further or less; all begin the next one together.
    training.state.step = first
    return generation


def count() -> dict[str, float]:
    for thread in threading.enumerate():
        if thread.name == "left-group":
            thread.join(LIMIT_S)
    gc.collect()
    process = psutil.Process()
    megabytes = process.memory_info().rss / 1e6
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": process.num_threads(),
        "megabytes": megabytes,
    }


if __name__ == "__main__":
    main()
