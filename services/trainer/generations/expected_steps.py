"""What a step is expected to take by each other method: pure functions of predictions and measurements.

Of a method that these workers have used, the time that was measured counts, and of any other the predicted
one, made longer where the model was too hopeful about a method of its kind, or else as it was about those
that were used. What was left after its first steps tells something of its own kind only: these are long, as
connections don't know their rates yet.
"""

from collections.abc import Collection, Mapping
from statistics import geometric_mean

from peerloom.kit.sync_method import SyncMethod
from peerloom.kit.sync_model.prediction import StepPrediction

Kind = tuple[str, bool, str, int]  # topology, whether it names its servers, codec, batches


def expected_steps(
    in_use: SyncMethod,
    measured_s: float,
    tried: Mapping[SyncMethod, float],
    predictions: Mapping[SyncMethod, StepPrediction],
    roughly: Collection[SyncMethod] = (),
) -> dict[SyncMethod, float]:
    """Seconds of a step by each method but the one in use, of which `measured_s` were measured.

    Of those that were tried, `roughly` names which were left after their first steps.
    """
    unseen = Unseen({**tried, in_use: measured_s}, predictions, roughly)
    return {
        method: tried.get(method, prediction.step_s * unseen.of(method, in_use))
        for method, prediction in predictions.items()
        if method != in_use
    }


class Unseen:
    """How many times what is predicted the `known` methods' steps take, at least 1; of a kind the most."""

    def __init__(
        self,
        known: Mapping[SyncMethod, float],
        predictions: Mapping[SyncMethod, StepPrediction],
        roughly: Collection[SyncMethod] = (),
    ) -> None:
        self._by_kind = _by_kind(known, predictions)
        well = {method: step_s for method, step_s in known.items() if method not in roughly}
        self._known_well = _by_kind(well, predictions)

    def of(self, method: SyncMethod, in_use: SyncMethod) -> float:
        """How many times what is predicted a step takes, as far as anybody knows.

        Of a kind that nobody has used as many as of those that were, in the geometric mean. Rounds keep to
        rounds: of their steps the model doesn't see another part.
        """
        if (own := self._by_kind.get(kind_of(method))) is not None:
            return own
        alike = [hope for (*_, batches), hope in self._known_well.items() if batches == method.batches]
        return geometric_mean(alike) if alike else self._known_well.get(kind_of(in_use), 1.0)


def _by_kind(
    known: Mapping[SyncMethod, float], predictions: Mapping[SyncMethod, StepPrediction]
) -> dict[Kind, float]:
    unseen: dict[Kind, float] = {}
    for method, step_s in known.items():
        if method in predictions:
            times = max(1.0, step_s / predictions[method].step_s)
            unseen[kind_of(method)] = max(times, unseen.get(kind_of(method), 1.0))
    return unseen


def kind_of(method: SyncMethod) -> Kind:
    """Methods of one kind go the same ways: the model errs alike about them."""
    return method.topology, bool(method.server_nodes), method.codec, method.batches
