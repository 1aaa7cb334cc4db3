"""A script with Hugging Face's Accelerate, in which a worker that is lost or joins restarts nobody.

    python examples/accelerate_elastic.py --epochs 4
    peerloom train examples/accelerate_elastic.py -- --epochs 4

Beside accelerate_script.py, which is an ordinary one, it has another Accelerator, and no checkpoints.
"""

import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset

from peerloom.integrations.accelerate import ElasticAccelerator


def points(count: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    places = torch.rand(count, 2, generator=generator) * 2 - 1
    return TensorDataset(places, (places.norm(dim=1) < 0.8).float())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    epochs = parser.parse_args().epochs

    accelerator = ElasticAccelerator(epochs=epochs, clip_norm=1.0)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.StepLR(optimiser, step_size=64, gamma=0.5)
    loader = DataLoader(points(2048), batch_size=64, shuffle=True)
    model, optimiser, loader, scheduler = accelerator.prepare(model, optimiser, loader, scheduler)

    for epoch in range(epochs):
        for places, inside in loader:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(places).squeeze(1), inside)
            accelerator.log_step(lr=scheduler.get_last_lr()[0])
            accelerator.backward(loss)
            optimiser.step()
            scheduler.step()
            optimiser.zero_grad()
        accelerator.print(f"epoch {epoch + 1}: loss {loss.item():.3f} on {accelerator.num_processes} workers")


if __name__ == "__main__":
    main()
