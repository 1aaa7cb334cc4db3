"""A training script with an elastic loop: a worker that is lost or joins restarts nobody.

    python examples/elastic_script.py --epochs 4
    peerloom train examples/elastic_script.py -- --epochs 4

It learns a circle from points. Outside Peerloom it runs in this process alone, and comes to the same.
"""

import argparse

import torch
from torch.nn import functional
from torch.utils.data import TensorDataset

import peerloom


def points(count: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    places = torch.rand(count, 2, generator=generator) * 2 - 1
    return TensorDataset(places, (places.norm(dim=1) < 0.8).float())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--samples", type=int, default=2048)
    options = parser.parse_args()

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.StepLR(optimiser, step_size=64, gamma=0.9)
    train, test = points(options.samples, seed=0), points(512, seed=1)

    def right(batch: list[torch.Tensor]) -> torch.Tensor:
        places, inside = batch
        return ((model(places).squeeze(1) > 0) == (inside > 0.5)).float()

    with peerloom.elastic(clip_norm=1.0) as run:
        model, optimiser, scheduler = run.prepare(model, optimiser, scheduler)
        run.evaluate(right, test)
        for places, inside in run.batches(train, batch_size=64, epochs=options.epochs):
            loss = functional.binary_cross_entropy_with_logits(model(places).squeeze(1), inside)
            run.step(loss)
            run.log(lr=scheduler.get_last_lr()[0])
    if run.is_main:
        print(f"loss {run.epochs[-1].loss:.3f}, accuracy {run.epochs[-1].metric:.3f}, {run.size} workers")


if __name__ == "__main__":
    main()
