"""One rank of a group that trains a small model by one method after the other; told by a line of JSON.

{"rank": 0, "ranks": 3, "hub": "/a/path", "methods": ["codec=int8", ...], "wrong": "codec=int4"}
It answers with a line for each method; with the one called `wrong`, rank 1 has a gradient that isn't finite.
"A>B" is A for the first half of the steps, and B from then on.
"""

import hashlib
import json
import sys

import torch
import torch.distributed as dist
from rank_group import rank_group, run_rank
from robust_member import sent_bytes
from torch_power_sgd import TorchPowerSGD

from peerloom.kit.sync_grammar import parse_sync
from peerloom.worker.group.process_group import Group
from peerloom.worker.sync import synchroniser
from peerloom.worker.sync.residuals import Residuals

STEPS = 4
WIDTH, HIDDEN = 64, 128


def flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def added_up(group: Group, tensor: torch.Tensor) -> torch.Tensor:
    """Over all ranks, by the plain all-reduce."""
    return group.wait(dist.all_reduce(tensor.clone(), async_op=True))


def train(group: Group, text: str, factor: float) -> dict[str, object]:
    """Some steps by a method; what came of them beside what was asked for."""
    torch.manual_seed(1)
    layers = (torch.nn.Linear(WIDTH, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, WIDTH))
    model = torch.nn.Sequential(*layers)
    parameters = list(model.parameters())
    optimiser = torch.optim.SGD(parameters, lr=0.1)
    chance = torch.Generator().manual_seed(100 + group.rank)
    residuals = Residuals()
    first, _, then = text.partition(">")
    sync = synchroniser(model, group, parse_sync("sync", first), residuals)
    low_rank = parse_sync("sync", first).low_rank
    by_torch = TorchPowerSGD(low_rank, parameters) if low_rank else None
    asked, came, hooked = list[torch.Tensor](), list[torch.Tensor](), list[torch.Tensor]()
    before, counted, losses = 0, 0, []
    for step in range(STEPS):
        if then and step == STEPS // 2:
            sync.close()
            sync = synchroniser(model, group, parse_sync("sync", then), residuals)
        inputs = torch.randn(5, WIDTH, generator=chance)
        own = (model(inputs) ** 2).mean() * factor / group.world_size
        gradients = flat(list(torch.autograd.grad(own, parameters)))
        asked.append(added_up(group, gradients))
        hooked.append(asked[-1] if by_torch is None else by_torch.summed(gradients))
        dist.barrier()  # all have received what was sent, so it has been counted
        before, counted = sent_bytes(), sync.traffic.bytes
        residuals.begin(step)
        loss = (sync.forward(inputs) ** 2).mean() * factor / group.world_size
        losses.append(sync.backward(loss, [5] * group.world_size))
        residuals.commit()
        dist.barrier()
        sent, counted = sent_bytes() - before, sync.traffic.bytes - counted
        came.append(flat([parameter.grad for parameter in parameters if parameter.grad is not None]))
        optimiser.step()
        optimiser.zero_grad()
    sync.close()
    left_out = flat([residuals.kept.get(one, torch.zeros_like(one)) for one in parameters])
    missing = sum(asked) - sum(came) - added_up(group, left_out)
    return {
        "parameters": hashlib.sha256(flat(parameters).numpy().tobytes()).hexdigest(),
        "finite": bool(flat(parameters).isfinite().all()),
        "losses": losses,
        "first_off": float((asked[0] - came[0]).norm() / asked[0].norm()),
        "missing": float(missing.norm() / sum(asked).norm()),
        "beside_torch": max(
            float((one - other).norm() / one.norm()) for one, other in zip(hooked, came, strict=True)
        ),
        "left_out": float(left_out.norm()),
        "sent": sent,
        "counted": counted,
    }


def main() -> None:
    told = json.loads(sys.stdin.readline())
    with rank_group(told, told["ranks"], ["a", "a", *"bcdefgh"][: told["ranks"]]) as group:
        for text in told["methods"]:
            print(json.dumps(train(group, text, factor=1.0)), flush=True)
        print(json.dumps(train(group, told["wrong"], torch.nan if group.rank == 1 else 1.0)), flush=True)
        dist.barrier()


if __name__ == "__main__":
    run_rank(main)
