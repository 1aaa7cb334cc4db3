"""Imports what takes seconds before a job waits for it, and leaves the process fit to be forked."""

import gc
import os


def import_all_that_is_slow() -> None:
    """Imports torch with the parts that it loads at first use, the worker, and the trainer's protocol."""
    gc.disable()  # what is imported stays: looking through it again and again takes a fifth of the time
    # Asked of the driver itself, whether there is a GPU would make CUDA unusable in every fork.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    import torch
    import torch.distributed
    import torch.nn.parallel

    import peerloom.v1.artifact_pb2_grpc
    import peerloom.v1.trainer_pb2_grpc
    import peerloom.worker.run  # noqa: F401  # imported for its cost, not its names

    torch.set_num_threads(1)  # a pool of threads would not be there after the fork
    layer = torch.nn.Linear(2, 2)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    for parameter in layer.parameters():  # not by backward(): its threads for GPUs don't survive a fork
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()  # the first step of any optimiser imports torch._dynamo, over a second of work
    optimiser.zero_grad()
    gc.enable()
