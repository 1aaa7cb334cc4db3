"""A stage's state on its way from one worker to another: what there is of it, then its tensors."""

import json
from collections.abc import Mapping, Sequence

from torch import Tensor

from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.plan.stage_links import StageLinks
from peerloom.worker.plan.whole_state import text_tensor


def send_state(links: StageLinks, stage: int, tensors: Mapping[str, Tensor]) -> None:
    """Begins to send a state to the worker of a stage; nobody may change it before `links.flush`."""
    links.send(stage, text_tensor(json.dumps(list(tensors))))
    for tensor in tensors.values():
        links.send(stage, tensor)


def receive_state(links: StageLinks, stage: int) -> dict[str, Tensor]:
    """The state that the worker of a stage sends. Raises what `StageLinks.receive` does."""
    names = json.loads(bytes(links.receive(stage).tensor.tolist()))
    return {name: links.receive(stage).tensor for name in names}


def take_over(training: PipelineTraining, links: StageLinks, sources: Sequence[int], step: int) -> None:
    """Each stage's state of a step goes from the rank that has it to the one that is to have it.

    All stages call it together. Raises what `StageLinks.receive` does, DataLossError for what doesn't fit.
    """
    for stage, source in enumerate(sources):
        if source == links.stage != stage:
            shadow = training.shadows[stage]
            shadow.go_to(step)
            send_state(links, stage, shadow.state.tensors())
    source = sources[links.stage]
    if source != links.stage:
        training.state.take(receive_state(links, source))
    links.flush()
