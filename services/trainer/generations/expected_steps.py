"""What a step is expected to take by each other method: pure functions of predictions and measurements.

Of a method that these workers have used, the time that was measured counts, and of any other the predicted
one, made longer where the model was too hopeful about a method of its kind, or else as it was about those
that were used.
"""

from collections.abc import Mapping
from statistics import geometric_mean

from peerloom.kit.sync_method import SyncMethod
from peerloom.kit.sync_model.prediction import StepPrediction

Kind = tuple[str, bool, str, int]  # topology, whether it names its servers, codec, batches


def expected_steps(
    in_use: SyncMethod,
    measured_s: float,
    tried: Mapping[SyncMethod, float],
    predictions: Mapping[SyncMethod, StepPrediction],
) -> dict[SyncMethod, float]:
    """Seconds of a step by each method but the one in use, of which `measured_s` were measured."""
    unseen = unseen_by_kind({**tried, in_use: measured_s}, predictions)
    return {
        method: tried.get(method, prediction.step_s * unseen_of(method, unseen, in_use))
        for method, prediction in predictions.items()
        if method != in_use
    }


def unseen_by_kind(
    known: Mapping[SyncMethod, float], predictions: Mapping[SyncMethod, StepPrediction]
) -> dict[Kind, float]:
    """How many times what is predicted the `known` methods' steps take, at least 1; of a kind the most."""
    unseen: dict[Kind, float] = {}
    for method, step_s in known.items():
        if method in predictions:
            times = max(1.0, step_s / predictions[method].step_s)
            unseen[kind_of(method)] = max(times, unseen.get(kind_of(method), 1.0))
    return unseen


def unseen_of(method: SyncMethod, unseen: Mapping[Kind, float], in_use: SyncMethod) -> float:
    """How many times what is predicted a step takes, as far as anybody knows.

    Of a kind that nobody has used as many as of those that were, in the geometric mean. Rounds keep to
    rounds: of their steps the model doesn't see another part.
    """
    if (own := unseen.get(kind_of(method))) is not None:
        return own
    alike = [hope for (*_, batches), hope in unseen.items() if batches == method.batches]
    return geometric_mean(alike) if alike else unseen.get(kind_of(in_use), 1.0)


def kind_of(method: SyncMethod) -> Kind:
    """Methods of one kind go the same ways: the model errs alike about them."""
    return method.topology, bool(method.server_nodes), method.codec, method.batches
