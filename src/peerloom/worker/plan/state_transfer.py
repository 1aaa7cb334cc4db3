"""A stage's state on its way from one worker to another: what there is of it, then its tensors."""

import json
from collections.abc import Mapping, Sequence

from torch import Tensor

from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.plan.stage_links import StageLinks
from peerloom.worker.plan.whole_state import text_tensor


def send_state(links: StageLinks, rank: int, tensors: Mapping[str, Tensor]) -> None:
    """Begins to send a state to a worker; nobody may change it before `links.flush`."""
    links.send(rank, text_tensor(json.dumps(list(tensors))))
    for tensor in tensors.values():
        links.send(rank, tensor)


def receive_state(links: StageLinks, rank: int) -> dict[str, Tensor]:
    """The state that a worker sends. Raises what `StageLinks.receive` does."""
    names = json.loads(bytes(links.receive(rank).tensor.tolist()))
    return {name: links.receive(rank).tensor for name in names}


def take_over(training: PipelineTraining, links: StageLinks, sources: Sequence[int], step: int) -> None:
    """A state of a step goes to each rank from the one, of `sources`, that has it: of that stage, or its
    shadow.

    All call it together; who has its own state is at the step already. Raises what `StageLinks.receive` does,
    DataLossError for what doesn't fit.
    """
    ranks = training.plan.ranks
    own = ranks.stage_of(links.rank)
    for rank, source in enumerate(sources):
        stage = ranks.stage_of(rank)
        if source == links.rank != rank and stage == own:
            send_state(links, rank, training.state.tensors())
        elif source == links.rank != rank:
            shadow = training.shadows[stage]
            shadow.go_to(step)
            send_state(links, rank, shadow.state.tensors())
    source = sources[links.rank]
    if source != links.rank:
        training.state.take(receive_state(links, source))
    links.flush()
