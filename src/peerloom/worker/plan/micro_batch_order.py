"""In which order a stage of a pipeline computes its micro-batches: one forward, one backward.

The schedule of PipeDream-Flush (Narayanan et al., ICML 2021), known as 1F1B: stage i of K begins with
K - 1 - i forward passes, then each further one is followed by a backward pass. So stage i keeps the
activations of at most K - i micro-batches, where GPipe keeps all, and both idle for as long.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pass:
    """A micro-batch, from 0, goes through the stage, forward or backward."""

    micro_batch: int
    is_forward: bool


def passes(stage: int, stages: int, micro_batches: int) -> list[Pass]:
    """What stage `stage` of `stages`, from 0, computes in a step, in order."""
    ahead = min(stages - 1 - stage, micro_batches)
    order = [Pass(number, True) for number in range(ahead)]
    for number in range(micro_batches):
        if ahead + number < micro_batches:
            order.append(Pass(ahead + number, True))
        order.append(Pass(number, False))
    return order
