"""A small GPT trained by DDP with snapshots, as torchrun starts it: nothing in it knows of Peerloom.

    torchrun --nproc-per-node 2 examples/mingpt_script.py --epochs 4
    peerloom run examples/mingpt_script.py --epochs 4

It learns to write what stands in this file, character by character, and goes on from its snapshot when it is
started again.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SNAPSHOT = Path("snapshot.pt")
CONTEXT = 32  # characters


class Characters(Dataset):
    """Every stretch of CONTEXT characters of a text, with the one after each."""

    def __init__(self, text: str) -> None:
        self.letters = sorted(set(text))
        places = {letter: place for place, letter in enumerate(self.letters)}
        self.text = torch.tensor([places[letter] for letter in text])

    def __len__(self) -> int:
        return (len(self.text) - 1) // CONTEXT

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        begin = index * CONTEXT
        chunk = self.text[begin : begin + CONTEXT + 1]
        return chunk[:-1], chunk[1:]


class Block(nn.Module):
    """Attention to what came before, then two layers for each place."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        split = self.attend(self.before(inputs)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*split, is_causal=True)
        outputs = inputs + self.project(attended.transpose(1, 2).flatten(2))
        return outputs + self.think(self.between(outputs))


class GPT(nn.Module):
    """Logits of the next character at each place."""

    def __init__(self, letters: int, width: int = 64, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(letters, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.last = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, letters, bias=False))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.last(self.blocks(self.letters(tokens) + self.places(places)))


class Trainer:
    """Trains by DDP, and keeps a snapshot of each epoch."""

    def __init__(self, model: GPT, data: Characters, device: torch.device) -> None:
        self.device, self.data, self.epochs_run = device, data, 0
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, batch_size=16, sampler=self.sampler)
        model = model.to(device)
        self.optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
        if SNAPSHOT.exists():
            self.load(model)
        self.model = DistributedDataParallel(model)

    def load(self, model: GPT) -> None:
        snapshot = torch.load(SNAPSHOT, map_location=self.device)
        model.load_state_dict(snapshot["model"])
        self.optimiser.load_state_dict(snapshot["optimiser"])
        self.epochs_run = snapshot["epochs_run"]
        print(f"goes on after epoch {self.epochs_run}")

    def save(self, epoch: int) -> None:
        snapshot = {
            "model": self.model.module.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "epochs_run": epoch,
        }
        torch.save(snapshot, SNAPSHOT.with_suffix(".new"))
        os.replace(SNAPSHOT.with_suffix(".new"), SNAPSHOT)  # so that nobody finds half of one

    def train(self, epochs: int) -> None:
        for epoch in range(self.epochs_run + 1, epochs + 1):
            self.sampler.set_epoch(epoch)
            for tokens, following in self.loader:
                logits = self.model(tokens.to(self.device))
                loss = functional.cross_entropy(logits.flatten(0, 1), following.to(self.device).flatten())
                self.optimiser.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimiser.step()
            if dist.get_rank() == 0:
                self.save(epoch)
                print(f"epoch {epoch}: loss {loss.item():.3f} on {dist.get_world_size()} processes")

    @torch.no_grad()
    def write(self, beginning: str, count: int) -> str:
        places = {letter: place for place, letter in enumerate(self.data.letters)}
        tokens = torch.tensor([[places[letter] for letter in beginning]], device=self.device)
        for _ in range(count):
            following = self.model.module(tokens[:, -CONTEXT:])[:, -1].argmax(dim=1, keepdim=True)
            tokens = torch.cat([tokens, following], dim=1)
        return "".join(self.data.letters[token] for token in tokens[0])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    epochs = parser.parse_args().epochs

    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    torch.manual_seed(0)
    data = Characters(Path(__file__).read_text())
    trainer = Trainer(GPT(len(data.letters)), data, device)
    trainer.train(epochs)
    if dist.get_rank() == 0:
        print(repr(trainer.write("def ", 32)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
