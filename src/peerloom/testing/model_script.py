"""How a scripted model answers: what it takes, how long it computes, and what comes of a question."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from peerloom.kit.raw_input import RawInput
from peerloom.testing.scripted_state import BUFFERS
from peerloom.worker.model_origin import ModelOrigin

DIGITS = RawInput((1, 8, 8), "uint8", 0, 16, labels=tuple("0123456789"))  # what task `digits` takes
HERE = "here"  # as `Inference.confirmed_by` calls the client's own machine


@dataclass(frozen=True, eq=False)
class Question:
    """What was asked of a model: the `inputs` [n, ...] of all requests that are computed together.

    `node` computes, "here" the client's own process; `model` is the digest, `task` what it was trained for.
    """

    inputs: npt.NDArray[Any]
    node: str
    model: str
    task: str


def by_sum(question: Question) -> npt.NDArray[Any]:
    """Logits [n, 10] of the class whose number is the last digit of the sum of an input's values."""
    sums = question.inputs.reshape(len(question.inputs), -1).sum(axis=1, dtype=np.int64)
    logits: npt.NDArray[Any] = 10.0 * np.eye(10, dtype=np.float32)[sums % 10]
    return logits


@dataclass(frozen=True)
class ModelScript:
    """Nothing is computed: a model takes its time, and answers what `answer` says.

    `answer` is given the Question and returns a row for each of its inputs; what it raises is the model's own
    failure. `takes` says what inputs are, from the end of a training on. Answering takes `latency_s`, and
    `sample_s` for each input, in virtual seconds; a node answers one batch at a time. A model has so many
    `layers` between which it can be cut, which share the time and the `model_bytes` of memory equally.
    `loses` names nodes that die, once, in the midst of their first question.
    """

    answer: Callable[[Question], npt.ArrayLike] = by_sum
    takes: RawInput = DIGITS
    latency_s: float = 0.01
    sample_s: float = 0.0
    layers: int = 4
    model_bytes: int = 1_000_000
    loses: Collection[str] = ()

    def seconds(self, samples: int) -> float:
        """What a batch takes all layers together."""
        return self.latency_s + samples * self.sample_s


class ModelScripts:
    """The scripts by tasks' names; models of any other task follow `default`."""

    def __init__(self, default: ModelScript | None = None) -> None:
        self.default = default or ModelScript()
        self.by_task: dict[str, ModelScript] = {}
        self._lost: set[tuple[str, str]] = set()

    def of(self, task: str) -> ModelScript:
        """The script of a task's models."""
        return self.by_task.get(task, self.default)

    def origin(self, task: str, arguments: Mapping[str, str]) -> ModelOrigin:
        """What the file of a task's model says of it."""
        takes = self.of(task).takes
        return ModelOrigin(task, arguments, takes.shape, takes.tensor_dtype, BUFFERS, takes)

    def is_lost(self, task: str, node: str) -> bool:
        """Whether a node dies by this question; True once for a task and node."""
        if node not in self.of(task).loses or (task, node) in self._lost:
            return False
        self._lost.add((task, node))
        return True
