"""The classes that a model's outputs stand for, by the labels that it carries: a pure function."""

from dataclasses import replace

from peerloom.client.types.inference import Inference
from peerloom.errors import DataLossError
from peerloom.inference.client.ensemble import softmax
from peerloom.kit.raw_input import RawInput


def with_classes(answer: Inference, raw: RawInput | None, *, is_vote: bool) -> Inference:
    """The answer with each input's most probable class and the probabilities of all, where labels are known.

    The outputs are logits [n, classes] (or probabilities, which stay), or with `is_vote` the classes [n].
    Raises DataLossError for labels that don't belong to such outputs.
    """
    if raw is None or not raw.labels:
        return answer
    outputs, count = answer.outputs, len(raw.labels)
    fits = outputs.ndim == 1 and outputs.max() < count if is_vote else outputs.shape[1:] == (count,)
    if not fits:
        raise DataLossError(
            f"The model names {count} classes, but its outputs are {list(outputs.shape)}: these "
            "aren't their labels. Train it anew, with one label for each output.",
            reason="LABELS_DIFFER",
        )
    if is_vote:
        return replace(answer, labels=tuple(raw.labels[one] for one in outputs), classes=raw.labels)
    probabilities = softmax(outputs)
    labels = tuple(raw.labels[one] for one in probabilities.argmax(axis=1))
    return replace(answer, labels=labels, probabilities=probabilities, classes=raw.labels)
