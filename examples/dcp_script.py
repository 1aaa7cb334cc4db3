"""A script whose ranks save their shards by torch.distributed.checkpoint: nothing in it knows of Peerloom.

    torchrun --nproc-per-node 2 examples/dcp_script.py --epochs 4
    peerloom run examples/dcp_script.py --epochs 4

It learns a circle from points with a model that FSDP shards: each rank holds, and writes, a part of the
parameters and of the optimiser's state. It goes on from its newest checkpoint when it is started again, on
fewer processes too.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CHECKPOINTS = Path("checkpoints")


class Application(Stateful):
    """Model, optimiser and epoch, as torch.distributed.checkpoint saves and loads them."""

    def __init__(self, model: torch.nn.Module, optimiser: torch.optim.Optimizer) -> None:
        self.model, self.optimiser, self.epoch = model, optimiser, 0

    def state_dict(self) -> dict[str, Any]:
        model, optimiser = get_state_dict(self.model, self.optimiser)
        return {"model": model, "optimiser": optimiser, "epoch": self.epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        set_state_dict(
            self.model,
            self.optimiser,
            model_state_dict=state_dict["model"],
            optim_state_dict=state_dict["optimiser"],
        )
        self.epoch = state_dict["epoch"]


def points(count: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    places = torch.rand(count, 2, generator=generator) * 2 - 1
    return TensorDataset(places, (places.norm(dim=1) < 0.8).float())


def newest() -> Path | None:
    """The last checkpoint that is whole: its metadata are written when all ranks have written their parts."""
    return max((path.parent for path in CHECKPOINTS.glob("epoch-*/.metadata")), default=None)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    epochs = parser.parse_args().epochs

    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).to(device)
    fully_shard(model)
    application = Application(model, torch.optim.AdamW(model.parameters(), lr=0.02))
    if (saved := newest()) is not None:
        dcp.load({"application": application}, checkpoint_id=saved)
        print(f"goes on after epoch {application.epoch}")

    data = points(2048)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler)
    for epoch in range(application.epoch, epochs):
        sampler.set_epoch(epoch)
        for places, inside in loader:
            application.optimiser.zero_grad()
            outputs = model(places.to(device)).squeeze(1)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(outputs, inside.to(device))
            loss.backward()
            application.optimiser.step()
        application.epoch = epoch + 1
        dcp.save({"application": application}, checkpoint_id=CHECKPOINTS / f"epoch-{epoch + 1:04}")
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1}: loss {loss.item():.3f} on {dist.get_world_size()} processes")
    dist.barrier()  # one that takes its group down in the midst of its last sum may hang in torch
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
