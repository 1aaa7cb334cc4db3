"""The random numbers of a step: made from seeds, so that another worker can draw the same ones."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def seed_of(seed: int, step: int, *part: int) -> int:
    """Of all chance in a part of a step: of the job's seed, the step and the part's numbers alone; 63 bits.

    A part is a rank's, or a layer's of a micro-batch.
    """
    return hash((seed, step, *part)) & 0x7FFF_FFFF_FFFF_FFFF


def seed_torch(device: torch.device, seed: int) -> None:
    """As torch.manual_seed, which takes about a millisecond where CUDA isn't used: it keeps a traceback."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def seed_all(device: torch.device, seed: int) -> None:
    """Seeds the global generators of Python and numpy, too; `seed` has up to 63 bits."""
    seed_torch(device, seed)
    random.seed(seed)
    np.random.seed(seed & 0xFFFF_FFFF)


@contextmanager
def kept_chance(device: torch.device) -> Iterator[None]:
    """All global generators are afterwards as they were."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def has_drawn_on_gpu(device: torch.device, seed: int) -> bool:
    """Whether numbers were drawn from a GPU's generator since it was seeded so.

    Which numbers come depends on the GPU's model, so on another one they can't be drawn again.
    """
    if device.type != "cuda":
        return False
    now = torch.cuda.get_rng_state(device)
    torch.cuda.manual_seed(seed)
    return not torch.equal(now, torch.cuda.get_rng_state(device))
