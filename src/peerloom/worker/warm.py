"""Imports what takes seconds before there is a job to wait for it."""


def import_all_that_is_slow() -> None:
    """Imports torch with the parts that it loads at first use, and the trainer's protocol."""
    import torch
    import torch.distributed
    import torch.nn.parallel

    import peerloom.v1.artifact_pb2_grpc
    import peerloom.v1.trainer_pb2_grpc  # noqa: F401  # imported for its cost, not its names

    torch.set_num_threads(1)
    layer = torch.nn.Linear(2, 2)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    torch.nn.functional.cross_entropy(layer(torch.ones(1, 2)), torch.zeros(1, dtype=torch.long)).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    optimiser.step()  # the first step of any optimiser imports torch._dynamo, over a second of work
    optimiser.zero_grad()
