"""The rival of the benchmark of shards: the same model by torch's `fully_shard`, as torchrun starts it.

As `emulated_rival` says, and with the samples of a `batch`. Each layer is a unit, and each rank has as many
of a batch's samples.
"""

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

from benchmarks.emulated_rival import begin


def main() -> None:
    rival = begin()
    model, mesh = rival.model(), init_device_mesh("cpu", (rival.world,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    batch = rival.asked["batch"]
    each = batch // rival.world

    def passes(inputs: Tensor, targets: Tensor) -> None:
        torch.autograd.backward([functional.cross_entropy(model(inputs), targets)])

    rival.train(
        model.parameters(), batch, lambda first: first + rival.rank * each + torch.arange(each), passes
    )


if __name__ == "__main__":
    main()
