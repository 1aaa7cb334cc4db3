"""A member of a group for `collective_tls`: steps of computing and one all-reduce, as lines of JSON ask for.

{"join": [generation, rank, world_size]} forms a group; {"steps": [count, compute_s, bytes]} is answered with
the seconds of each step, and those of a processor in the mean; {"broadcasts": [count, bytes]} from rank 0
with the latter alone; {"wait": bytes} stays in all-reduces until
{"break": true}, answered with the seconds until the member was free. argv: the hub, and the identity for
collectives by TLS ("": plain).
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.entry_hub import HubEntries
from peerloom.kit.identity import Identity
from peerloom.kit.logs import configure_logs
from peerloom.v1.trainer_pb2 import ConfigureGeneration
from peerloom.worker.group.process_group import Group
from peerloom.worker.group.relay.relay import Relay
from peerloom.worker.group.relay.tls import JobTls
from peerloom.worker.group.waits import GenerationBrokenError

LIMIT_S = 60.0


def say(message: object) -> None:
    os.write(sys.stdout.fileno(), f"{json.dumps(message)}\n".encode())


def steps(group: Group, count: int, compute_s: float, size_bytes: int) -> object:
    """Seconds of each step, and of a processor in the mean.

    The computing is a wait: two ranks on two cores leave none for it otherwise.
    """
    gradient, pause, taken = torch.ones(size_bytes // 4), threading.Event(), []
    busy_s = time.process_time()
    for _ in range(count):
        began_s = time.perf_counter()
        pause.wait(compute_s)
        group.wait(dist.all_reduce(gradient, async_op=True))
        taken.append(time.perf_counter() - began_s)
    return [taken, (time.process_time() - busy_s) / count]


def broadcasts(group: Group, count: int, size_bytes: int) -> float:
    """Seconds of a processor that a broadcast takes here, in the mean."""
    tensor, busy_s = torch.ones(size_bytes // 4), time.process_time()
    for _ in range(count):
        group.wait(dist.broadcast(tensor, 0, async_op=True))
    return (time.process_time() - busy_s) / count


def reduce_until_broken(group: Group, size_bytes: int) -> None:
    tensor = torch.ones(size_bytes // 4)
    told = threading.Thread(target=break_when_told, args=(group,))
    told.start()
    say("waiting")
    try:
        while True:
            group.wait(dist.all_reduce(tensor, async_op=True))
            group.check()
    except (GenerationBrokenError, RuntimeError):
        free_s = time.perf_counter()
    told.join()
    group.close()
    say(max(0.0, free_s - broken_s[0]))  # the other one's break may have come first


broken_s: list[float] = []


def break_when_told(group: Group) -> None:
    sys.stdin.readline()
    broken_s.append(time.perf_counter())
    group.break_from_outside("the benchmark says so")


def main() -> None:
    torch.set_num_threads(1)
    configure_logs("worker")  # standard output is for answers
    entries, relay = HubEntries(sys.argv[1]), None
    if sys.argv[2]:
        relay = Relay("127.0.0.1", JobTls(Identity(Path(sys.argv[2])), "job-1"))
    say("ready")
    while line := sys.stdin.readline():
        command = json.loads(line)
        if "join" in command:
            generation, rank, world_size = command["join"]
            config = ConfigureGeneration(
                generation=generation,
                rank=rank,
                world_size=world_size,
                collective_timeout_s=LIMIT_S,
                node_ids=["node-1"] * world_size,
            )
            began_s = time.perf_counter()
            group = Group(config, torch.device("cpu"), entries.of(generation), relay=relay)
            group.form()
            say(time.perf_counter() - began_s)
        elif "steps" in command:
            say(steps(group, *command["steps"]))
        elif "broadcasts" in command:
            say(broadcasts(group, *command["broadcasts"]))
        else:
            broken_s.clear()
            reduce_until_broken(group, command["wait"])


if __name__ == "__main__":
    main()
