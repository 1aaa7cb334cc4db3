"""The emulated task on slots that tell a speed of ours: so slow that computing outweighs what travels."""

from peerloom.worker.plan import task_survey
from peerloom.worker.tasks.emulated import Emulated

TOLD_GFLOPS = 0.05


class Slow(Emulated):
    """What slots measure depends on what else runs here, and with it the plan."""

    def __init__(self, parameters: str, layers: str, samples: str) -> None:
        super().__init__(parameters, layers, sample_ms="1", samples=samples)
        task_survey.slot_gflops = lambda device: TOLD_GFLOPS  # the module's own name for it
