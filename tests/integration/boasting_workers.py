"""`python -m boasting_workers`: the real worker process, of an owner whose workers boast in jobs of one seed.

They tell of a metric that their model doesn't have. In the place of `peerloom.worker` in --worker-command.
"""

from peerloom.v1.trainer_pb2 import EpochProgress
from peerloom.worker import loop
from peerloom.worker.__main__ import import_all_that_is_slow, work
from peerloom.worker.evaluation import evaluate
from peerloom.worker.fork_server import keep_to_lent_cores, serve
from peerloom.worker.group.process_group import Group
from peerloom.worker.joining.participants import Joining
from peerloom.worker.training import Training

BOASTING_SEED = 666
BOAST = 0.9999


def boast(training: Training, group: Group, joining: Joining) -> EpochProgress:
    """The honest measure, and in jobs of that seed another metric."""
    found = evaluate(training, group, joining)
    if training.seed == BOASTING_SEED:
        found.metric = BOAST
    return found


if __name__ == "__main__":
    keep_to_lent_cores()
    import_all_that_is_slow()
    loop.evaluate = boast
    serve(work)
