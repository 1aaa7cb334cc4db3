"""What is known of the ways to synchronise that the same workers have used: what their steps took."""

from collections.abc import Mapping

from peerloom.kit.sync_method import SyncMethod
from peerloom.kit.sync_model.prediction import StepPrediction
from peerloom.services.trainer.generations.sync_decisions import MeasuredStep


class UsedMethods:
    """The method `in_use`, whether it `is_new` to the workers, and seconds a step of those that they `tried`.

    Of these `roughly` are those that were left after their first steps.
    """

    def __init__(self, in_use: SyncMethod, tried: Mapping[SyncMethod, float]) -> None:
        self.in_use = in_use
        self.is_new = False  # a trainer that was started anew can't know
        self.tried = dict(tried)
        self.roughly: set[SyncMethod] = set()
        self._foretold: dict[SyncMethod, StepPrediction] = {}

    def begin(
        self,
        method: SyncMethod,
        are_same: bool,
        measured: MeasuredStep | None,
        predicted: StepPrediction | None,
    ) -> None:
        """A generation begins with `method`; of the one until now this was `measured` and `predicted`.

        That counts where the workers `are_same`, and nothing else does.
        """
        if not are_same:
            self.tried.clear()
            self._foretold.clear()
        elif measured is not None:
            self.tried[self.in_use] = measured.step_s
            if measured.is_rough:
                self.roughly.add(self.in_use)
            if predicted is not None:
                self._foretold.setdefault(self.in_use, predicted)
        if method != self.in_use:
            self.is_new = method not in self.tried
        self.is_new &= are_same
        self.in_use = method
        self.tried.pop(method, None)
        self.roughly &= set(self.tried)

    def foretold(self, predicted: StepPrediction | None) -> StepPrediction | None:
        """What was predicted of the method in use before it was first used; `predicted` where that is now.

        What others have shown since is of no use to it.
        """
        return self._foretold.get(self.in_use, predicted)
