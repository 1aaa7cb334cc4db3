"""Data that no node has: they travel as an artifact, named by their digest and checked on arrival.

    PYTHONPATH=examples peerloom up
    python examples/data_as_artifact.py

The folder is made here, put once, and fetched by whichever nodes train; a second job finds it in their
caches.
"""

import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import peerloom
from peerloom.worker.task import Split, Task


class Waves(Task):
    """Is a curve of 16 points a sine, or its mirror image? `data` is the folder with waves.safetensors."""

    epochs = 3
    learning_rate = 0.1

    def __init__(self, data: str) -> None:
        self.file = Path(data) / "waves.safetensors"

    def model(self) -> torch.nn.Module:
        return torch.nn.Linear(16, 2)

    def data(self) -> tuple[Split, Split]:
        held = load_file(self.file)
        curves, signs = held["curves"], held["signs"]
        return Split(curves[:800], signs[:800]), Split(curves[800:], signs[800:])


def write(folder: Path) -> None:
    random = torch.Generator().manual_seed(7)
    signs = torch.randint(2, (1000,), generator=random)
    curves = torch.linspace(0, 6, 16).sin() * (2 * signs[:, None] - 1)
    curves += torch.randn(1000, 16, generator=random)
    save_file({"curves": curves, "signs": signs}, folder / "waves.safetensors")


if __name__ == "__main__":
    with peerloom.Client() as client, tempfile.TemporaryDirectory() as made:
        write(Path(made))
        kept = client.artifacts.put(made, name="waves", copies=1)
        print(f"put {kept.size_bytes:,} bytes, kept by {', '.join(kept.holders)}")
        arguments = {"data": f"artifact:{kept.digest}"}
        print(client.train("data_as_artifact:Waves", arguments=arguments, requests=2).result())
        held = next(each for each in client.artifacts.list() if each.digest == kept.digest)
        print(f"now kept by {', '.join(held.holders)}")
