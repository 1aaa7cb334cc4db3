"""An ordinary DDP script, as torchrun starts it: nothing in it knows of Peerloom.

    torchrun --nproc-per-node 2 examples/ddp_script.py --epochs 4
    peerloom run examples/ddp_script.py --epochs 4

It learns a circle from points, and writes a checkpoint after each epoch, from which it goes on when it is
started again.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CHECKPOINT = Path("checkpoint.pt")


def points(count: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    places = torch.rand(count, 2, generator=generator) * 2 - 1
    return TensorDataset(places, (places.norm(dim=1) < 0.8).float())


def save(model: DistributedDataParallel, optimiser: torch.optim.Optimizer, epoch: int) -> None:
    state = {"model": model.module.state_dict(), "optimiser": optimiser.state_dict(), "epoch": epoch}
    torch.save(state, CHECKPOINT.with_suffix(".new"))
    os.replace(CHECKPOINT.with_suffix(".new"), CHECKPOINT)  # so that nobody finds half of one


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
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.02)
    begun = 0
    if CHECKPOINT.exists():
        state = torch.load(CHECKPOINT, map_location=device)
        model.module.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        begun = state["epoch"]
        print(f"goes on after epoch {begun}")

    data = points(2048)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler)
    for epoch in range(begun, epochs):
        sampler.set_epoch(epoch)
        for places, inside in loader:
            optimiser.zero_grad()
            outputs = model(places.to(device)).squeeze(1)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(outputs, inside.to(device))
            loss.backward()
            optimiser.step()
        if dist.get_rank() == 0:
            save(model, optimiser, epoch + 1)
            print(f"epoch {epoch + 1}: loss {loss.item():.3f} on {dist.get_world_size()} processes")
    dist.barrier()  # one that takes its group down in the midst of its last sum may hang in torch
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
