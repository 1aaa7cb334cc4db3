"""A run's batches as loops over epochs want them: an epoch at a time, each from where the training is."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader

from peerloom.errors import InvalidArgumentError
from peerloom.worker.batches import Nest
from peerloom.worker.elastic.elastic_run import ElasticRun


class EpochBatches:
    """What a DataLoader is to such a loop; `loader` shuffles, as `run.batches` wants it.

    `step` counts committed steps, and travels to newcomers: one that joins in the third epoch finds the
    first two empty, and the third where the others are. A batch whose exchange broke comes again.
    """

    def __init__(self, run: ElasticRun, loader: Any, epochs: int) -> None:
        if not isinstance(loader, DataLoader):
            raise InvalidArgumentError.of_field("loader", type(loader).__name__, "a DataLoader that shuffles")
        self._run, self._loader, self._epochs = run, loader, epochs
        self._per_epoch = len(loader)
        self._passes = 0
        self._batches: Iterator[Nest] | None = None
        self._next: list[Nest] = []  # at most one, which nobody has had yet
        self.step = 0
        run.register("epochs", self)

    def __len__(self) -> int:
        return self._per_epoch

    def __iter__(self) -> Iterator[Nest]:
        """What is left of the next epoch; nothing if the others are beyond it."""
        self._passes += 1
        end = self._passes * self._per_epoch
        self.begin()
        while self.step < end:
            yield self.another()
        if self._passes == self._epochs:
            self.finish()

    @property
    def epoch(self) -> int:
        """How many epochs are complete."""
        return self.step // self._per_epoch

    @property
    def within_epoch(self) -> int:
        """How many steps the epoch at hand has."""
        return self.step % self._per_epoch

    def begin(self) -> None:
        """Begins the run's loop, once, and waits for its first batch: `step` is the others' then."""
        if self._batches is None:
            self._batches = self._run.batches(self._loader, epochs=self._epochs)
            self._next.append(next(self._batches))

    def another(self) -> Nest:
        """The next batch, or the last once more if its exchange broke; StopIteration when the loop is over.

        That is before the last epoch's end when another worker has stopped early.
        """
        assert self._batches is not None, "it has begun"
        return self._next.pop() if self._next else next(self._batches)

    def make_step(self, loss: Tensor) -> bool:
        """The run's step; whether it was committed."""
        committed = self._run.step(loss)
        self.step += committed
        return committed

    def finish(self) -> None:
        """Ends the run's loop, for all workers. Raises what the training ends with."""
        assert self._batches is not None, "it has begun"
        next(self._batches, None)  # there is one if the loop stops early: it is left as by a break
        self._run.__exit__(None, None, None)

    def state_dict(self) -> dict[str, int]:
        """For newcomers and checkpoints."""
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what another worker's `state_dict` gave."""
        self.step = int(state["step"])
