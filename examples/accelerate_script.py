"""An ordinary script with Hugging Face's Accelerate: nothing in it knows of Peerloom.

    accelerate launch examples/accelerate_script.py --epochs 4
    peerloom run examples/accelerate_script.py --epochs 4

It learns a circle from points, and saves its state after each epoch, from which it goes on when it is started
again. accelerate_elastic.py is the same with a loop that nobody has to start again.
"""

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

CHECKPOINTS = Path("checkpoints")


def points(count: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    places = torch.rand(count, 2, generator=generator) * 2 - 1
    return TensorDataset(places, (places.norm(dim=1) < 0.8).float())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    epochs = parser.parse_args().epochs

    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.02)
    loader = DataLoader(points(2048), batch_size=32, shuffle=True)
    model, optimiser, loader = accelerator.prepare(model, optimiser, loader)
    saved = sorted(CHECKPOINTS.glob("epoch-*[0-9]"))
    begun = int(saved[-1].name.removeprefix("epoch-")) if saved else 0
    if begun:
        accelerator.load_state(str(saved[-1]))
        accelerator.print(f"goes on after epoch {begun}")

    for epoch in range(begun, epochs):
        for places, inside in loader:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(places).squeeze(1), inside)
            optimiser.zero_grad()
            accelerator.backward(loss)
            optimiser.step()
        size = accelerator.num_processes
        accelerator.print(f"epoch {epoch + 1}: loss {loss.item():.3f} on {size} processes")
        folder = CHECKPOINTS / f"epoch-{epoch + 1:04}"
        accelerator.save_state(str(folder.with_suffix(".new")))
        accelerator.wait_for_everyone()
        if accelerator.is_local_main_process:
            folder.with_suffix(".new").rename(folder)  # so that nobody finds half of one
    accelerator.end_training()


if __name__ == "__main__":
    main()
