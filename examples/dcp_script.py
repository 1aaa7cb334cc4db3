"""A DDP script that keeps its state by torch.distributed.checkpoint: nothing in it knows of Peerloom.

    torchrun --nproc-per-node 2 examples/dcp_script.py --epochs 4
    peerloom run examples/dcp_script.py --epochs 4

It learns a circle from points, and goes on from its newest checkpoint when it is started again. Rank 0 alone
writes: with DDP it has all of the state, and nodes of Peerloom share no disk.
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
from torch.nn.parallel import DistributedDataParallel
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


def save(application: Application) -> None:
    folder = CHECKPOINTS / f"epoch-{application.epoch:04}"
    being_written = CHECKPOINTS / "new"
    dcp.save({"application": application}, checkpoint_id=being_written, no_dist=True)
    being_written.rename(folder)  # so that nobody finds half of one


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    epochs = parser.parse_args().epochs

    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).to(device)
    )
    application = Application(model, torch.optim.AdamW(model.parameters(), lr=0.02))
    saved = sorted(CHECKPOINTS.glob("epoch-*"))
    if saved:
        dcp.load({"application": application}, checkpoint_id=saved[-1], no_dist=True)
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
        if dist.get_rank() == 0:
            save(application)
            print(f"epoch {epoch + 1}: loss {loss.item():.3f} on {dist.get_world_size()} processes")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
