"""One rank of a group that makes steps by `RobustReduce`, as one line of JSON on its standard input says.

{"rank": 0, "hub": "/a/path", "steps": [{"rule": "median", "owners": [...], "counts": [...], "lies": {}}]}
It answers with a line for each step: its own gradient, the one that came out, the loss, or the bytes it sent.
"""

import json
import os
import socket
import struct
import sys

import torch
import torch.distributed as dist
from rank_group import rank_group, run_rank

from peerloom.errors import FailedPreconditionError
from peerloom.worker.group.breaking import open_sockets
from peerloom.worker.group.process_group import Group
from peerloom.worker.sync.robust.common_coin import CommonCoin
from peerloom.worker.sync.robust.exchange import RobustReduce

LIES = {"nan": torch.nan, "flip": -1.0, "huge": 1e30}
SENT_OFFSET = 200  # of tcpi_bytes_sent in the kernel's struct tcp_info; tcpi_bytes_retrans follows it


def sent_bytes() -> int:
    """What all sockets of this process have sent, without the headers and what was sent again."""
    total = 0
    for descriptor in open_sockets().values():
        try:
            with socket.socket(fileno=os.dup(descriptor)) as duplicate:
                told = duplicate.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                sent, again = struct.unpack_from("QQ", told, SENT_OFFSET)
                total += sent - again
        except (OSError, struct.error):
            continue  # not TCP
    return total


def make_step(group: Group, step: dict[str, object]) -> dict[str, object]:
    counts, lie = step["counts"], step["lies"].get(str(group.rank))  # type: ignore[attr-defined, index]
    torch.manual_seed(1)
    width = step.get("width", 8)
    model = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Tanh(), torch.nn.Linear(width, 3))
    chance = torch.Generator().manual_seed(100 + group.rank)
    count = counts[group.rank]
    inputs = torch.randn(max(count, 2), 4, generator=chance)
    factor = LIES[lie] if lie else 1.0

    def loss_of(outputs: torch.Tensor) -> torch.Tensor:
        weight = factor if count else 0.0
        return (outputs**2).mean(1).sum() * (weight / sum(counts))

    loss_of(model(inputs)).backward()
    own = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).tolist()
    model.zero_grad(set_to_none=True)
    coin = CommonCoin(1, group.rank, group.world_size) if step.get("coin") else None
    sync = RobustReduce(model, step["owners"], step["rule"], group, coin=coin)
    try:
        loss = sync.backward(loss_of(sync.forward(inputs)), counts)
        model.zero_grad(set_to_none=True)  # the first step sorts the buckets anew
        dist.barrier()  # all have received what was sent, so it has been counted
        before = sent_bytes()
        loss = sync.backward(loss_of(sync.forward(inputs)), counts)
        dist.barrier()
        sent = sent_bytes() - before
    except FailedPreconditionError as error:
        sync.close()
        return {"refused": error.message}
    came = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    sync.close()
    if step.get("width"):
        return {"sent": sent, "gradient_bytes": 4 * len(came), "counted": sync.traffic.bytes}
    return {"own": own, "came": came.tolist(), "loss": loss, "thrown": sync.thrown and sync.thrown.hex()}


def main() -> None:
    told = json.loads(sys.stdin.readline())
    steps = told["steps"]
    world_size = len(steps[0]["counts"])
    with rank_group(told, world_size) as group:
        for step in steps:
            print(json.dumps(make_step(group, step)), flush=True)
        dist.barrier()


if __name__ == "__main__":
    run_rank(main)
