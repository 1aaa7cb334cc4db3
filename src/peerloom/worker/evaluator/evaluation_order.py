"""What the trainer tells the evaluator, and what that answers: one line of JSON each; known without torch."""

import dataclasses
import json
import math
from collections.abc import Mapping

from peerloom.sandbox.grant import Grant

READY = '{"ready": true}'
# Of an answer's reason, and of what a child may say in all.
MAX_REASON_CHARACTERS, MAX_ANSWER_BYTES = 1000, 1 << 16


@dataclasses.dataclass(frozen=True)
class EvaluationOrder:
    """Evaluate the model in this file, of a built-in task with these arguments.

    `inputs` are files in the `grant`'s folder by the names of the arguments they stand for: a bundle is given
    to the task as the folder that was put in. The child has `limit_s` seconds, and no more than the `grant`.
    """

    task: str
    task_arguments: Mapping[str, str]
    model_path: str
    inputs: Mapping[str, str]
    grant: Grant
    limit_s: float

    @classmethod
    def from_json(cls, line: str) -> "EvaluationOrder":
        """Reads the line. Raises KeyError, TypeError or ValueError for one that isn't an order."""
        told = json.loads(line)
        return cls(**{**told, "grant": Grant.from_dict(told["grant"])})

    def to_json(self) -> str:
        """The line, without its end."""
        return json.dumps(dataclasses.asdict(self))


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """The metric over the whole test set, and how many of its `test_samples` rounding may turn.

    `near_ties` counts samples, in parts where a sample has several outputs.
    """

    metric_name: str
    metric: float
    near_ties: float
    training_samples: int
    test_samples: int


@dataclasses.dataclass(frozen=True)
class Unfit:
    """The file holds no model of this task."""

    reason: str


@dataclasses.dataclass(frozen=True)
class Unable:
    """It could not be evaluated; `code` is the reason for programs."""

    code: str
    reason: str


EvaluationAnswer = Evaluated | Unfit | Unable
_KINDS = {kind.__name__: kind for kind in (Evaluated, Unfit, Unable)}


def answer_to_json(answer: EvaluationAnswer) -> str:
    """The line, without its end."""
    told = dataclasses.asdict(answer)
    if "reason" in told:
        told["reason"] = told["reason"][:MAX_REASON_CHARACTERS]
    return json.dumps({"kind": type(answer).__name__, **told})


def answer_from_json(line: str) -> EvaluationAnswer:
    """Reads the line. Raises KeyError, TypeError or ValueError for one that isn't an answer."""
    told = json.loads(line)
    answer: EvaluationAnswer = _KINDS[told.pop("kind")](**told)
    if isinstance(answer, Evaluated):
        if answer.test_samples < 1 or not 0 <= answer.near_ties <= answer.test_samples:
            raise ValueError(f"{answer.near_ties} of {answer.test_samples} samples are near a tie")
        if not isinstance(answer.metric, float) or math.isinf(answer.metric):
            raise ValueError(f"the metric is {answer.metric!r}")
    return answer
