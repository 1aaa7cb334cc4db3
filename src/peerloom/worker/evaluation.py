"""Measuring an epoch: every worker a part of the test set."""

import torch

from peerloom.v1.trainer_pb2 import EpochProgress
from peerloom.worker.group.process_group import Group, all_gather_rows
from peerloom.worker.joining.participants import Joining
from peerloom.worker.training import Training

EVALUATION_BATCH = 256


def evaluate(training: Training, group: Group, joining: Joining) -> EpochProgress:
    """Measures an epoch that has just ended; all ranks do together. Raises what `Group.check` does."""
    turn = joining.turn()
    score = 0.0 if turn is None or not len(training.test) else _score(training, group, *turn)
    epoch_loss_sum = 0.0 if turn is None else training.state.epoch_loss_sum
    rows = all_gather_rows(group, [score, epoch_loss_sum], torch.float64)
    group.check()
    loss = rows[joining.source][1] / training.schedule.samples
    metric = sum(row[0] for row in rows) / len(training.test) if len(training.test) else loss
    if joining.catch_up is not None:
        joining.catch_up.measured(metric)
    else:
        training.state.close_epoch(training.state.evaluated + 1, metric)
    return EpochProgress(
        epoch=joining.evaluated,
        metric_name=training.task.metric_name,
        metric=metric,
        loss=loss,
        test_samples=len(training.test),
    )


@torch.no_grad()
def _score(training: Training, group: Group, place: int, places: int) -> float:
    # Everybody measures a part of the test set; the parts are disjoint and cover it.
    model, test = training.state.model, training.test
    model.eval()
    total = 0.0
    for indices in torch.split(torch.arange(place, len(test), places), EVALUATION_BATCH):
        group.check()
        total += float(training.scores(indices).double().sum())
    model.train()
    return total
