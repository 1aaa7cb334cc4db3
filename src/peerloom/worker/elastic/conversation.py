"""Between the thread that trains and the one that runs the script: they take turns."""

import threading
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Generic, TypeVar

from peerloom.errors import FailedPreconditionError, InvalidArgumentError
from peerloom.worker.batches import Nest
from peerloom.worker.elastic.losses import OfferedLoss

CHECK_S = 0.1  # how soon a break of the group is seen by who waits for a script's last lines
_T = TypeVar("_T")


class _Turn(Enum):
    """What the script is doing: its own work, waiting for a batch or for its step, or nothing of the loop.

    Who leaves may have failed: that is known at the end of its `with` block.
    """

    WORKS = 1
    ASKS = 2
    OFFERS = 3
    LEAVES = 4
    LEFT = 5


class Conversation(Generic[_T]):
    """The turns of one script's loop; `_T` is what the script hands over when its loop begins."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._turn = _Turn.WORKS
        self._loop: _T | None = None
        self._batch: Nest = None
        self._loss: OfferedLoss | None = None
        self._counts = False  # whether the offered step was committed with this worker
        self._logged: dict[str, float] = {}
        self._is_over = self._is_ended = False
        self._error: BaseException | None = None  # of the script
        self._failure: BaseException | None = None  # of the training

    # What the script's thread calls.

    def begin(self, loop: _T) -> None:
        """The script's loop begins. Raises FailedPreconditionError where it has had one."""
        with self._changed:
            if self._loop is not None:
                raise FailedPreconditionError(
                    "The script has had a loop: a job has one, over all its epochs (epochs=...)."
                )
            self._loop = loop
            self._changed.notify_all()

    def next_batch(self) -> tuple[Nest] | None:
        """Waits for this worker's next part of a batch; None: the training is over."""
        with self._changed:
            self._set(_Turn.ASKS)
            while self._turn is _Turn.ASKS and not self._is_over:
                self._wait_for_training()
            if self._is_over:
                return None
            batch, self._batch = self._batch, None
            return (batch,)

    def offer(self, loss: OfferedLoss) -> bool:
        """Hands over the batch's loss, and waits for its step; whether it was committed with this worker."""
        with self._changed:
            self._loss = loss
            self._set(_Turn.OFFERS)
            while self._turn is _Turn.OFFERS:
                self._wait_for_training()
            return self._counts

    def log(self, metrics: Mapping[str, float]) -> None:
        """Numbers of the batch at hand; they count if its step does."""
        self._logged.update(metrics)

    def leave(self, is_sure: bool = True) -> None:
        """The script asks for no more batches; not `is_sure`: perhaps because it has failed."""
        with self._changed:
            self._set(_Turn.LEFT if is_sure or self._turn is _Turn.LEFT else _Turn.LEAVES)

    def end(self, error: BaseException | None) -> None:
        """The script has ended, with this error if it failed."""
        with self._changed:
            self._error, self._is_ended = self._error or error, True
            self._set(_Turn.LEFT)

    # What the training's thread calls.

    def wait_for_loop(self) -> _T:
        """What the script trains. Raises InvalidArgumentError when it has failed, or ends without a loop."""
        with self._changed:
            while self._loop is None and not self._is_ended:
                self._changed.wait()
            if self._loop is None:
                self._raise_failed()
                raise InvalidArgumentError(
                    "The script ended without a loop: train by `for batch in run.batches(dataset)`, inside "
                    "`with peerloom.elastic() as run`.",
                    reason="SCRIPT_WITHOUT_LOOP",
                )
            return self._loop

    def loss_of(self, batch: Nest) -> OfferedLoss | None:
        """The script's loss of a batch, which it offers with its graph; None: it has left its loop.

        Raises InvalidArgumentError when the script failed, or made no step of the batch.
        """
        with self._changed:
            self._settle(False)
            self._wait_for_script(_Turn.WORKS, _Turn.LEAVES)
            if self._has_left():
                return None
            self._logged.clear()
            self._batch = batch
            self._set(_Turn.WORKS)
            self._wait_for_script(_Turn.WORKS, _Turn.LEAVES)
            if self._has_left():
                return None
            if self._turn is _Turn.ASKS:
                raise InvalidArgumentError(
                    "The loop asked for another batch without run.step(loss): call it once for each batch.",
                    reason="BATCH_WITHOUT_STEP",
                )
            assert self._loss is not None, "it was offered"
            loss, self._loss = self._loss, None
            return loss

    def commit(self, counts: bool) -> dict[str, float]:
        """The offered step is committed, `counts` says whether with this worker; lets the body end.

        Returns what was logged in it.
        """
        with self._changed:
            self._settle(counts)
            self._wait_for_script(_Turn.WORKS)
            logged, self._logged = self._logged, {}
            return logged if counts else {}

    def close(self) -> None:
        """There are no more batches."""
        with self._changed:
            self._settle(False)
            self._is_over = True
            self._changed.notify_all()

    def wait_for_end(self, check: Callable[[], None]) -> None:
        """Waits until the script has ended; raises what `check` does, InvalidArgumentError if it failed."""
        with self._changed:
            while not self._is_ended:
                self._changed.wait(CHECK_S)
                check()
            self._raise_failed()

    def fail(self, error: BaseException) -> None:
        """The training can't go on; the script gets the error."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def _set(self, turn: _Turn) -> None:
        self._turn = turn
        self._changed.notify_all()

    def _settle(self, counts: bool) -> None:
        if self._turn is _Turn.OFFERS:
            self._counts = counts
            self._set(_Turn.WORKS)

    def _wait_for_script(self, *turns: _Turn) -> None:
        while self._turn in turns:
            self._changed.wait()

    def _wait_for_training(self) -> None:
        if self._failure is None:
            self._changed.wait()
        if self._failure is not None:
            raise self._failure

    def _has_left(self) -> bool:
        if self._turn is _Turn.LEFT:
            self._raise_failed()
        return self._turn is _Turn.LEFT

    def _raise_failed(self) -> None:
        if self._error is not None:
            text = f"the script failed: {type(self._error).__name__}: {self._error}"
            raise InvalidArgumentError(text, reason="SCRIPT_FAILED") from self._error
