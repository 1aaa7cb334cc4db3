"""The sum of a stage's gradients over its workers, each of which computed some of the micro-batches.

Each worker adds up a part of all gradients, in the order of ranks, and the others take its sum: so all have
the same bits, whatever their processors, and make the same update of them.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from peerloom.errors import InvalidArgumentError
from peerloom.worker.plan.stage_links import StageLinks
from peerloom.worker.plan.stage_model import StageModel
from peerloom.worker.plan.tensor_places import check_dense
from peerloom.worker.sync.common_values import alike_of

_NO_SPARSE = "the workers of a stage add up dense ones. Train with widths of 1 in the plan"


def add_up(model: StageModel, links: StageLinks, ranks: Sequence[int]) -> None:
    """Makes the gradients of a stage's model the sum over the workers with these `ranks`, in place.

    All of them call it together. A parameter that none has a gradient of has none afterwards. Raises
    InvalidArgumentError for a sparse gradient, and what `StageLinks.receive` does.
    """
    parameters = [each for each in model.named_parameters() if each[1].requires_grad]
    for name, parameter in parameters:
        check_dense(name, parameter.grad, _NO_SPARSE, "SPARSE_IN_WIDE_STAGE")
    trained = [parameter for _, parameter in parameters]
    has = torch.tensor([float(each.grad is not None) for each in trained])
    has = _summed(has, links, ranks)
    with_gradient = [parameter for parameter, count in zip(trained, has.tolist(), strict=True) if count]
    for alike in alike_of(with_gradient):
        total = _summed(torch.cat([_values(each) for each in alike]), links, ranks)
        values_of = torch.split(total, [each.numel() for each in alike])
        for parameter, values in zip(alike, values_of, strict=True):
            parameter.grad = values.view_as(parameter).to(parameter.device)
    links.flush()


def buffers_of(model: StageModel) -> dict[str, Tensor]:
    """Copies of the buffers in a stage's state, by name: torch changes some without counting it."""
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    state = model.state_dict()
    return {name: each.clone() for name, each in state.items() if name not in parameters}


def check_buffers(before: Mapping[str, Tensor], model: StageModel, plan: str) -> None:
    """Raises InvalidArgumentError if a pass has changed a buffer: workers of one stage would differ by it."""
    now = buffers_of(model)
    changed = [name for name, seen in before.items() if not torch.equal(now[name], seen)]
    if changed:
        limit = (
            f"a pipeline with one worker for {changed[0]}: each forward pass changes it, so workers that "
            "compute other micro-batches would come to differ. Or use GroupNorm for BatchNorm"
        )
        raise InvalidArgumentError.of_field("plan", plan, limit)


def _summed(own: Tensor, links: StageLinks, ranks: Sequence[int]) -> Tensor:
    """The sum of what each of the ranks has, of [n], the same on all."""
    place, others = list(ranks).index(links.rank), [rank for rank in ranks if rank != links.rank]
    parts = list(own.tensor_split(len(ranks)))
    for rank, part in zip(ranks, parts, strict=True):
        if rank != links.rank:
            links.send(rank, part)
    came = {rank: links.receive(rank).tensor for rank in others} | {links.rank: parts[place]}
    total = came[ranks[0]].clone()
    for rank in ranks[1:]:
        total += came[rank]
    for rank in others:
        links.send(rank, total)
    sums = {rank: links.receive(rank).tensor for rank in others} | {links.rank: total}
    return torch.cat([sums[rank] for rank in ranks])


def _values(parameter: nn.Parameter) -> Tensor:
    gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    return gradient.detach().flatten().cpu()
