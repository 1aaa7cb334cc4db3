"""How the simulation's jobs train: each way of training scores otherwise, so that a promise can compare."""

from peerloom.testing.scripted_state import ScriptedState
from peerloom.testing.training_script import TrainingScript


class Fingerprints(TrainingScript):
    """A model scores what stands for the samples that made it."""

    def score(self, state: ScriptedState) -> float:
        """A number from 0 to 1."""
        return state.fingerprint()


FINGERPRINTS = Fingerprints()
EVALUATOR_DIES = 0.1  # so often: it may be killed, which is no reason for a job to fail
