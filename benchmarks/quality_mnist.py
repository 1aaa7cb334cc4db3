"""What is lost by sending less on MNIST: see `quality`.

Run by `make bench-quality MNIST=DIR`, with a folder of MNIST's files.
"""

from pathlib import Path

from benchmarks.measure import Measurement
from benchmarks.mnist_files import mnist_arguments
from benchmarks.quality import GROUPED, LOCAL, PARTS, Trial, Way, compared

WAYS = (
    Way("codec=int4", 0.5),
    Way("codec=mxfp4", 0.5),
    Way("codec=1bit"),
    Way("codec=powersgd:4"),
    Way("codec=powersgd:1"),
    Way(LOCAL[0], 0.5, 1 / 100),
    Way(LOCAL[1], 0.5, 1 / 100),
    Way(LOCAL[2], 1.0, 1 / 400),
    Way(f"{LOCAL[0]},delay=1", 0.5, 1 / 100),
    Way(PARTS, 0.5, 1 / 100),
    Way("cocod-sgd"),
    Way("local-sgd"),
    *GROUPED,
)


def run(quick: bool) -> list[Measurement]:
    arguments = mnist_arguments()
    part = ", nine tenths of the 10,000 test images" if "test_fraction" in arguments else ""
    title = f"MNIST network{part}, 3 epochs"
    return compared(Trial("mnist", title, WAYS, False, 3, arguments, (Path(arguments["data"]),)), quick)


def profile(quick: bool) -> str:
    """None: what a method loses shows in no profile."""
    return ""
