"""What is lost by sending less on the text task: see `quality`. Run by `make bench-quality`."""

from benchmarks.measure import Measurement
from benchmarks.quality import EXACT, GROUPED, LOCAL, PARTS, Trial, Way, compared

PLAIN = "period=14,codec=mxfp4"
WAYS = (
    Way("codec=int4", 1.0),
    Way("codec=mxfp4", 1.0),
    Way("codec=powersgd:4"),
    Way(LOCAL[0], 1.0, 1 / 100),
    Way(LOCAL[1], 1.0, 1 / 100),
    Way(LOCAL[2]),
    Way(f"{LOCAL[0]},delay=1", 1.0, 1 / 100),
    Way("cocod-sgd"),
    Way("local-sgd"),
    *GROUPED,
    Way(PLAIN, 1.0, 1 / 100),
    Way(PARTS, 1.0, 1 / 100),
    # Whether it is parts that do it, their codec, or neither.
    Way("period=7,codec=2bit"),
    Way("period=1000,partial=7:1"),
    Way("codec=2bit"),
    # What the correction for Adam is worth, and what more of the rate would be to all.
    Way("period=8", rate=0.5),
    Way("period=8", rate=2),
    Way(PLAIN, rate=2),
    Way(PARTS, rate=2),
    Way(EXACT, rate=2),
)


def run(quick: bool) -> list[Measurement]:
    title = "text transformer, 2 epochs of Python's reference"
    return compared(Trial("text", title, WAYS, True, 2), quick)


def profile(quick: bool) -> str:
    """None: what a method loses shows in no profile."""
    return ""
