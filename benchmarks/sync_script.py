"""The rival of the benchmark of synchronisation: the same model under plain DDP, as torchrun starts it.

As `emulated_rival` says; a step has a sample of each rank.
"""

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from benchmarks.emulated_rival import begin


def main() -> None:
    rival = begin()
    model = DistributedDataParallel(rival.task.model(), gradient_as_bucket_view=True)

    def passes(inputs: Tensor, targets: Tensor) -> None:
        torch.autograd.backward([functional.cross_entropy(model(inputs), targets)])

    rival.train(model.parameters(), rival.world, lambda first: torch.tensor([first + rival.rank]), passes)


if __name__ == "__main__":
    main()
