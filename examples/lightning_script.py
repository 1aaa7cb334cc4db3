"""An ordinary script with PyTorch Lightning: nothing in it knows of Peerloom.

    torchrun --nproc-per-node 2 examples/lightning_script.py --epochs 4
    peerloom run examples/lightning_script.py --epochs 4

It learns a circle from points, and goes on from its last checkpoint when it is started again. With
`--elastic`, and `peerloom train`, it is the same with PeerloomStrategy, and nobody has to start again:

    peerloom train examples/lightning_script.py -- --epochs 4 --elastic
"""

import argparse
import os
from pathlib import Path

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

CHECKPOINT = Path("checkpoints/last.ckpt")


def points(count: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    places = torch.rand(count, 2, generator=generator) * 2 - 1
    return TensorDataset(places, (places.norm(dim=1) < 0.8).float())


class Circle(pl.LightningModule):
    """Whether a point lies within a circle."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        places, inside = batch
        outputs = self.layers(places).squeeze(1)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(outputs, inside)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        places, inside = batch
        right = (self.layers(places).squeeze(1) > 0) == (inside > 0.5)
        self.log("accuracy", right.float().mean(), sync_dist=True)

    def configure_optimizers(self) -> dict[str, object]:
        optimiser = torch.optim.AdamW(self.parameters(), lr=0.02)
        return {"optimizer": optimiser, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimiser, 2, 0.5)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--elastic", action="store_true")
    options = parser.parse_args()

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    if options.elastic:
        from peerloom.integrations.lightning import PeerloomStrategy

        trainer = pl.Trainer(
            strategy=PeerloomStrategy(), max_epochs=options.epochs, enable_checkpointing=False, **quiet
        )
    else:
        keeping = pl.callbacks.ModelCheckpoint(CHECKPOINT.parent, save_last=True)
        trainer = pl.Trainer(
            accelerator="auto",
            devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
            num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", 1)),
            strategy="ddp" if "RANK" in os.environ else "auto",
            max_epochs=options.epochs,
            callbacks=[keeping],
            **quiet,
        )
    torch.manual_seed(0)
    train = DataLoader(points(2048, 0), batch_size=64, shuffle=True)
    test = DataLoader(points(512, 1), batch_size=64)
    begun = CHECKPOINT if CHECKPOINT.exists() else None
    trainer.fit(Circle(), train, test, ckpt_path=begun)
    if trainer.is_global_zero:
        print(f"accuracy {trainer.callback_metrics['accuracy']:.3f} after epoch {trainer.current_epoch}")


if __name__ == "__main__":
    main()
