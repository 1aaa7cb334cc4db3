"""A stage's own state one step ago: where all go back to if a lost stage's shadow lacks its last step."""

from torch import Tensor

from peerloom.worker.training_state import TrainingState

_MODEL = "model."


class OwnPast:
    """Keeps the state of before the newest step, and of the newest one what its forward passes change.

    `buffers` are those of the model, by the names in its state.
    """

    def __init__(self, state: TrainingState, buffers: tuple[str, ...]) -> None:
        self._state = state
        self._names = tuple(_MODEL + name for name in buffers)
        self._buffers = self._copied_buffers()
        self._past: dict[str, Tensor] = {}
        self._past_step: int | None = None

    def steps(self) -> tuple[int, ...]:
        """The steps that it can go to."""
        past = () if self._past_step is None else (self._past_step,)
        return (*past, self._state.step)

    def size_bytes(self) -> int:
        """What one copy of the state takes."""
        return self._state.size_bytes()

    def tensors(self) -> dict[str, Tensor]:
        """The state of the newest step, whatever a step that is under way has changed."""
        return {**self._state.tensors(), **self._buffers}

    def note(self) -> None:
        """The next update comes: the state of now is the past then."""
        now = self._state.tensors()
        for name in self._past.keys() - now.keys():
            del self._past[name]
        for name, tensor in now.items():
            kept = self._past.get(name)
            if name in self._buffers:
                self._past[name] = self._buffers[name]
            elif kept is not None and kept.shape == tensor.shape and kept.dtype == tensor.dtype:
                kept.copy_(tensor)  # memory that is there already costs less than new one
            else:
                self._past[name] = tensor.detach().clone()
        self._past_step = self._state.step

    def settle(self) -> None:
        """The update is made."""
        self._buffers = self._copied_buffers()

    def go_to(self, step: int) -> None:
        """Makes the state that of this step, of `steps`, without anything of a step that was under way."""
        self._state.updater.clear()
        if step == self._state.step:
            now = self._state.tensors()
            for name, buffer in self._buffers.items():
                now[name].copy_(buffer)
        else:
            assert step == self._past_step, "it was asked for a step that it has"
            self._state.take(dict(self._past))
        # The optimiser may use the memory of what it took.
        self._past, self._past_step = {}, None
        self._buffers = self._copied_buffers()

    def _copied_buffers(self) -> dict[str, Tensor]:
        if not self._names:
            return {}
        now = self._state.tensors()
        return {name: now[name].detach().clone() for name in self._names}
