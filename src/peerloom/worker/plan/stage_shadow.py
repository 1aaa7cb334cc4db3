"""A copy of another stage's state, which follows it by the same updates of the same gradients."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from peerloom.worker.plan.stage_change import ChangeLayout
from peerloom.worker.plan.stage_model import StageModel, without_memory
from peerloom.worker.training_state import TrainingState
from peerloom.worker.updating.updater import Updater


@dataclass(frozen=True)
class CommittedStep:
    """What all stages know of a step that they made: the gradient's norm, and the sum of its losses."""

    step: int
    norm: float
    loss_sum: float


@dataclass
class Shadow:
    """The state of `stage`, in a model that never computes. One thread at a time may call it.

    It lags: a change is kept until nobody can have to go back before it.
    """

    stage: int
    model: StageModel
    updater: Updater
    state: TrainingState = field(init=False)
    layout: ChangeLayout = field(init=False)
    _changes: dict[int, Tensor] = field(default_factory=dict, init=False)  # by step, as what follows
    _made: dict[int, CommittedStep] = field(default_factory=dict, init=False)
    _closed: dict[int, tuple[int, float]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.state = TrainingState(self.model, self.updater)
        self.layout = ChangeLayout(self.model)

    @property
    def size_bytes(self) -> int:
        """Of the state, and of the two changes that may wait."""
        return self.state.size_bytes() + 2 * self.layout.size_bytes

    def steps(self) -> tuple[int, ...]:
        """Of which steps it can give the state, in rising order."""
        step = last = self.state.step
        while last + 1 in self._changes and last + 1 in self._made:
            last += 1
        return tuple(range(step, last + 1))

    def came(self, step: int, content: Tensor) -> None:
        """A step's change is here; nobody else may change its bytes any more."""
        self._changes[step] = content

    def committed(self, made: CommittedStep) -> None:
        """All stages have made this step."""
        self._made[made.step] = made

    def closed_epoch(self, step: int, epoch: int, metric: float) -> None:
        """An epoch was measured after this step."""
        if self.state.step == step:
            self.state.close_epoch(epoch, metric)
        else:
            self._closed[step] = (epoch, metric)

    def go_to(self, step: int) -> None:
        """Makes the updates up to this step, of `steps`, and forgets what came after it."""
        self.follow(step)
        assert self.state.step == step, "it was asked for a step that it has"
        for later in (self._changes, self._made, self._closed):
            later.clear()

    def follow(self, step: int) -> None:
        """Makes the updates up to this step, as far as they are known."""
        for following in self.steps()[1:]:
            if following > step:
                return
            made = self._made.pop(following)
            self.layout.unpack(self._changes.pop(following))
            self.updater.step(made.norm)
            self.state.step = following
            self.state.epoch_loss_sum += made.loss_sum
            if following in self._closed:
                self.state.close_epoch(*self._closed.pop(following))


def with_empty_tensors(whole: nn.Module, names: frozenset[str]) -> nn.Module:
    """The model with memory on the processor for the tensors of these `names`, not filled, and no others."""
    without_memory(whole, names)
    made: dict[int, nn.Parameter] = {}  # layers that share a parameter share it still
    for prefix, module in whole.named_modules(remove_duplicate=False):
        path = f"{prefix}." if prefix else ""
        for name, parameter in module._parameters.items():
            if parameter is not None and path + name in names and parameter.is_meta:
                empty = torch.empty_like(parameter, device="cpu")
                module._parameters[name] = made.setdefault(
                    id(parameter), nn.Parameter(empty, parameter.requires_grad)
                )
        for name, buffer in module._buffers.items():
            if buffer is not None and path + name in names and buffer.is_meta:
                module._buffers[name] = torch.empty_like(buffer, device="cpu")
    return whole
