"""A process that joins generations as its standard input says, and repeats a collective until one breaks.

Lines of JSON: {"join": [generation, rank, world_size, collective]}, {"break": generation}, or
{"count": [limit_s, at_most]}, which waits until no more than that is left of the past generations.
It answers with lines of JSON on standard output, and meets the others through the hub at argv[1]. With an
identity at argv[2] its collectives travel by TLS.
"""

import json
import os
import queue
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
from peerloom.worker.sync import SyncTraffic
from peerloom.worker.sync.direct import DirectExchange

joins: "queue.Queue[list[object]]" = queue.Queue()
groups: dict[int, Group] = {}


def say(message: object) -> None:
    # In one piece: both threads speak, and print() would write the line's end apart from the line.
    os.write(sys.stdout.fileno(), f"{json.dumps(message)}\n".encode())


def listen() -> None:
    for line in sys.stdin:
        command = json.loads(line)
        if "join" in command:
            joins.put(command["join"])
        elif "count" in command:
            count(*command["count"])
        else:
            groups[command["break"]].break_from_outside("the parent said so")
            say("told")
    os._exit(0)


def count(limit_s: float, at_most: dict[str, int]) -> None:
    for thread in threading.enumerate():
        if thread.name == "left-group":
            thread.join(limit_s)
    deadline_s, pause = time.monotonic() + limit_s, threading.Event()
    while any(left()[name] > most for name, most in at_most.items()) and time.monotonic() < deadline_s:
        pause.wait(0.05)  # threads of the library's end when they like
    say(left())


def left() -> dict[str, int]:
    return {"descriptors": len(os.listdir("/proc/self/fd")), "threads": len(os.listdir("/proc/self/task"))}


def run(collective: object, group: Group) -> None:
    tensor = torch.ones(1000)
    try:
        if collective == "all_reduce":
            group.wait(dist.all_reduce(tensor, async_op=True))
        elif collective == "all_to_all":
            received = torch.empty(999)
            group.wait(dist.all_to_all_single(received, torch.ones(999), async_op=True))
        elif collective == "direct":
            exchange = DirectExchange(group, SyncTraffic())
            exchange.rows(exchange.begin_to_all(torch.ones(1000)))
        elif collective == "broadcast":
            group.wait(dist.broadcast(tensor, 0, async_op=True))
        else:
            dist.barrier()
    except RuntimeError as error:
        raise group.broken(error) from error
    group.check()


def join(generation: int, rank: int, world_size: int, collective: object) -> None:
    config = ConfigureGeneration(
        generation=generation,
        rank=rank,
        world_size=world_size,
        collective_timeout_s=60,
        node_ids=["node-1"] * world_size,
        beside=generation % 2 == 0,  # then they greet each other first
    )
    group = groups[generation] = Group(
        config, torch.device("cpu"), entries.of(generation), relay=relay, mesh_host="127.0.0.1"
    )
    say("forming")
    try:
        group.form()
        group.expect(15)  # what a break left hanging ends then
        for rounds in range(1 << 30):
            run(collective, group)
            if rounds == 2:
                say("three rounds")
    except GenerationBrokenError:
        group.close()
        say("broken")


if __name__ == "__main__":
    configure_logs("worker")  # standard output is for answers
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    entries = HubEntries(sys.argv[1])
    relay = None
    if len(sys.argv) > 2:
        relay = Relay("127.0.0.1", JobTls(Identity(Path(sys.argv[2])), "job-1"))
    threading.Thread(target=listen, daemon=True).start()
    say("ready")
    while True:
        join(*joins.get())  # type: ignore[arg-type]  # the parent sends them in this order
