"""What a script sees of its training: `with peerloom.elastic() as run`, in a job and outside one alike."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors.torch import save_model
from torch import Tensor, nn

from peerloom.errors import FailedPreconditionError, InvalidArgumentError
from peerloom.kit.elastic_scripts import METRIC_NAME_LONGEST, METRICS_MOST
from peerloom.worker.batches import Nest
from peerloom.worker.elastic.conversation import Conversation
from peerloom.worker.elastic.declared import declared_origin
from peerloom.worker.elastic.hosting import ScriptHost, host_of_script
from peerloom.worker.elastic.local_run import begin_alone
from peerloom.worker.elastic.loop_settings import LoopSettings, whole_number
from peerloom.worker.elastic.losses import Losses, offered
from peerloom.worker.elastic.prepared import Prepared, prepared_of
from peerloom.worker.elastic.samples import Collate, check_samples, collate_rows, loop_data
from peerloom.worker.elastic.script_task import ScriptEvaluation, ScriptLoop
from peerloom.worker.model_origin import ModelOrigin
from peerloom.worker.training_state import Registered
from peerloom.worker.updating.plain_state import taken_to_pieces
from peerloom.worker.updating.precision import autocast


@dataclass(frozen=True)
class MeasuredEpoch:
    """An epoch, from 1, with its mean loss, and its metric (the loss again where nothing is evaluated)."""

    epoch: int
    loss: float
    metric: float


class ElasticRun:
    """A script's training; `peerloom.elastic` makes it. Errors are InvalidArgumentError or its siblings.

    `rank` and `size` are those of the moment, which change as workers come and go, and `is_main` is true of
    one worker of all; before the first batch each believes itself alone. `device` is where the model is and
    batches are; `epochs` are those measured while this worker was there; `steps` are those committed in the
    job, the same on all workers.
    """

    def __init__(self, settings: LoopSettings) -> None:
        self.rank, self.size, self.steps = 0, 1, 0
        self.epochs: list[MeasuredEpoch] = []
        self._settings = settings
        self._host: ScriptHost | None = host_of_script()
        self._conversation: Conversation[ScriptLoop] = (
            self._host.conversation if self._host is not None else Conversation()
        )
        best = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.device = self._host.device if self._host is not None else best
        self._prepared: Prepared | None = None
        self._evaluation: ScriptEvaluation | None = None
        self._registered: dict[str, Registered] = {}
        self._origin: ModelOrigin | None = None
        self._names_logged: set[str] = set()
        self._has_begun = self._has_batch = self._is_stopping = False
        self._stepping: frozenset[int] | None = None  # by a batch's earlier pieces
        self._casting: AbstractContextManager[Any] = nullcontext()
        self._join: Callable[[], BaseException | None] = lambda: None

    @property
    def is_main(self) -> bool:
        """Whether this worker is rank 0, which prints and writes for all."""
        return self.rank == 0

    def __enter__(self) -> "ElasticRun":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failed = None if isinstance(error, SystemExit) and not error.code else error
        if self._host is None or failed is not None:
            self._conversation.end(failed)
        else:
            self._conversation.leave()
        # What follows the block has the process's random numbers for itself; Ctrl-C waits for no batch.
        failure = None if isinstance(error, KeyboardInterrupt) else self._join()
        if failure is not None and failed is None:
            raise failure

    def prepare(self, *parts: Any) -> Any:
        """The same objects, models on `device`; from now on the training steps optimisers and schedules.

        Any number of modules, optimisers and schedules, in any order. A schedule is stepped once after each
        step of its optimiser, one that wants a metric after each epoch, with the epoch's.
        """
        if self._prepared is not None:
            raise FailedPreconditionError(
                "run.prepare was called twice: hand over all models, optimisers and schedules at once."
            )
        self._prepared = prepared_of(parts, self.device)
        return parts

    def register(self, name: str, state: Registered) -> None:
        """Has an object travel to newcomers and into checkpoints, by its state_dict and load_state_dict.

        Change it only where run.step returned True, and alike on all workers.
        """
        self._check_not_begun("run.register")
        if not (callable(getattr(state, "state_dict", None)) and hasattr(state, "load_state_dict")):
            limit = "an object with state_dict() and load_state_dict()"
            raise InvalidArgumentError.of_field(f"registered {name!r}", type(state).__name__, limit)
        try:
            taken_to_pieces(state.state_dict(), name, {})
        except TypeError as error:
            limit = "a state of numbers, text, tensors, and lists and mappings of those"
            raise InvalidArgumentError.of_field(f"registered {name!r}", str(error), limit) from error
        self._registered[name] = state

    def declare(self, task: str, inputs: Tensor, **arguments: str) -> None:
        """Says that the task "module:Class" with these arguments makes the model, which can be asked then.

        `inputs` are some samples as the model takes them, [n, ...]. Call it between prepare and the loop.
        """
        self._check_not_begun("run.declare")
        if self._prepared is None:
            raise FailedPreconditionError("Call run.prepare(model, optimiser) before run.declare(...).")
        self._origin = declared_origin(self._prepared.model, task, arguments, inputs)

    def evaluate(
        self,
        score: Callable[[Nest], Tensor],
        dataset: Any,
        name: str = "accuracy",
        collate: Collate = collate_rows,
    ) -> None:
        """After each epoch the workers share `dataset`, and report the mean of `score(batch)`: [n] values.

        The model is in evaluation mode then, and no gradients are kept. Call it before the loop.
        """
        self._check_not_begun("run.evaluate")
        self._evaluation = ScriptEvaluation(score, check_samples("evaluated dataset", dataset), name, collate)

    def batches(
        self,
        dataset: Any,
        batch_size: int | None = None,
        epochs: int = 1,
        collate: Collate | None = None,
    ) -> Iterator[Nest]:
        """This worker's share of each global batch of `batch_size` samples (32), on `device`, to the end.

        `dataset` is map-style, a peerloom.worker.sharded.Sharded, or a DataLoader, of which data set, order
        and size of batches, collate function and processes are taken. Where an exchange broke, the batch, or
        one of more samples, comes again.
        """
        self._check_not_begun("run.batches")
        if self._prepared is None:
            raise FailedPreconditionError("Call run.prepare(model, optimiser) before run.batches(...).")
        self._settings.check()
        loop = ScriptLoop(
            self._prepared,
            loop_data(dataset, batch_size, collate),
            epochs=whole_number("epochs", epochs),
            settings=self._settings,
            evaluation=self._evaluation,
            registered=self._registered,
            origin=self._origin,
        )
        if self._host is not None:
            self._host.watched_by(self)
        self._conversation.begin(loop)
        self._has_begun = True
        if self._host is None:
            self._join = begin_alone(self._conversation, self, self._settings.seed, self.device)
        return self._walk()

    def step(self, loss: Losses) -> bool:
        """Backward pass, exchange, clipping, the optimisers' and the schedules' step: the batch's commit.

        `loss` is the mean over the batch's samples, a scalar, or a mapping of optimisers to such: each of
        these gets its own loss's gradient then, and others rest. Returns whether the parameters made a step:
        False for all but the last piece of a `micro_batch`, and where the batch will come again.
        """
        if not self._has_batch:
            raise FailedPreconditionError(
                "run.step was called without a batch: call it once for each that run.batches gives."
            )
        assert self._prepared is not None, "there is a batch"
        given = offered(loss, self._prepared.optimisers)
        self._check_gradients(given.stepping)
        self._end_batch()
        is_whole = self._conversation.offer(given)
        self._stepping = None if is_whole else given.stepping
        self.steps += is_whole
        return is_whole

    def stop(self) -> None:
        """Ends the loop of all workers: none gets another batch, and the model is that of the steps made.

        The batch at hand still counts if its step is made. Raises FailedPreconditionError outside the loop.
        """
        if not self._has_begun:
            raise FailedPreconditionError("run.stop() was called before the loop: nothing is trained yet.")
        self._is_stopping = True

    def log(self, **metrics: float | Tensor) -> None:
        """Numbers of this step, shown with its loss; those of rank 0 count, once, when the step is committed.

        Call it between a batch and the next, before or after run.step.
        """
        plain = {name: v.detach() if isinstance(v, Tensor) else v for name, v in metrics.items()}
        numbers = {name: float(value) for name, value in plain.items()}
        self._names_logged |= numbers.keys()
        if len(self._names_logged) > METRICS_MOST or any(len(name) > METRIC_NAME_LONGEST for name in numbers):
            limit = f"{METRICS_MOST} numbers in all, of names with at most {METRIC_NAME_LONGEST} characters"
            raise InvalidArgumentError.of_field("run.log's names", sorted(self._names_logged), limit)
        self._conversation.log(numbers)

    def save(self, path: str | Path, model: nn.Module | None = None) -> None:
        """Writes parameters as safetensors, of one `model` or of all; rank 0 does. A job keeps all besides.

        Those of several models are called by their places: 0.weight, 1.weight.
        """
        if self._prepared is None:
            raise FailedPreconditionError("Call run.prepare(model, optimiser) before run.save(path).")
        if self.is_main:
            save_model(self._prepared.model if model is None else model, str(path))

    def placed(self, rank: int, size: int) -> None:
        """The training says where this worker stands."""
        self.rank, self.size = rank, size

    def reached(self, steps: int) -> None:
        """The training says how far the job is, as it begins another step, or the same again."""
        self.steps, self._stepping = steps, None

    def measured(self, epoch: int, loss: float, metric: float) -> None:
        """The training says what an epoch was like."""
        self.epochs.append(MeasuredEpoch(epoch, loss, metric))

    def _walk(self) -> Iterator[Nest]:
        given: tuple[Nest] | None = (None,)
        try:
            while not self._is_stopping and (given := self._conversation.next_batch()) is not None:
                self._has_batch = True
                self._casting = autocast(self._settings.autocast, self.device)
                self._casting.__enter__()
                yield given[0]
                self._end_batch()
        finally:
            self._end_batch()
            # A `break` looks like an error here; what it is shows at the end of the `with` block.
            self._conversation.leave(is_sure=self._is_stopping or given is None)

    def _end_batch(self) -> None:
        if self._has_batch:
            self._has_batch = False
            self._casting.__exit__(None, None, None)

    def _check_gradients(self, stepping: frozenset[int]) -> None:
        assert self._prepared is not None, "there is a batch"
        if self._stepping is not None:  # there may be gradients of earlier pieces
            if self._stepping != stepping:
                limit = "those of the batch's pieces before"
                raise InvalidArgumentError.of_field("run.step's optimisers", "others", limit)
        elif any(each.grad is not None for each in self._prepared.model.parameters()):
            raise FailedPreconditionError(
                "The model has gradients before run.step(loss), which makes the backward pass itself: leave "
                "out loss.backward(), and the optimiser's and the scheduler's step."
            )

    def _check_not_begun(self, call: str) -> None:
        if self._has_begun:
            raise FailedPreconditionError(
                f"{call} was called after the loop began: a run has one loop over all its epochs, and what "
                "that needs is said before."
            )


def elastic(
    *,
    clip_norm: float | None = None,
    autocast: str | None = None,
    micro_batch: int | None = None,
    seed: int = 0,
) -> ElasticRun:
    """A script's training, as a context: in a job with the other workers, else alone in this process.

    `clip_norm` is the largest norm of the whole gradient, `autocast` ("bf16", "fp16") what the loop's body
    computes in up to run.step, `micro_batch` the most samples of a batch at once. `seed` orders the samples,
    unless a job has its own. Raises FailedPreconditionError in a process that torchrun started with others.
    """
    if host_of_script() is None and int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise FailedPreconditionError(
            f"This is one of {os.environ['WORLD_SIZE']} processes of torchrun or `peerloom run`; each would "
            "train alone. Start a script with an elastic loop by `peerloom train SCRIPT.py`."
        )
    return ElasticRun(LoopSettings(clip_norm, autocast, micro_batch, seed))
