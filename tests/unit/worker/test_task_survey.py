"""What a worker tells of a model before it is planned: counted without memory, in parts that can be cut."""

import itertools

import pytest
import torch

from peerloom.v1.trainer_pb2 import JobSpec
from peerloom.worker.plan.task_layers import task_layers
from peerloom.worker.plan.task_survey import cuttable_starts, survey
from peerloom.worker.task import load_task

pytestmark = pytest.mark.timeout(60)


def test_what_has_nothing_to_train_goes_with_what_it_follows_and_shared_tensors_stay_together() -> None:
    assert cuttable_starts([0, 5, 0, 7, 0], []) == [0, 3], "the first part has the first that is trained"
    assert cuttable_starts([5, 7, 9, 3], [(0,), (1, 2), ()]) == [0, 1, 3]
    assert cuttable_starts([5, 7, 9], [(0, 2)]) == [0]


def test_the_digits_can_be_cut_where_pipelines_cut_them() -> None:
    spec = JobSpec(task="digits", plan="auto", batch_size=32, epochs=1, learning_rate=0.05)
    task = load_task("digits", {})
    told = survey(task, spec, torch.device("cpu"))
    starts = [(part.first_layer, part.end_layer) for part in told.parts]
    assert starts[0][0] == 0
    assert starts[-1][1] == len(task_layers(task)) == 8
    assert all(first[1] == second[0] for first, second in itertools.pairwise(starts))
    assert sum(part.parameters for part in told.parts) == 6090
    assert told.why_whole == ""
    assert told.training_samples == 1437
    assert not told.bears_rounds, "a pipeline has none"
    assert min(told.free_bytes, told.used_bytes, told.speed_gflops) > 0


def test_a_task_that_no_pipeline_can_train_says_why() -> None:
    task = load_task("digits", {})
    task.autocast = "fp16"
    spec = JobSpec(task="digits", plan="auto", batch_size=32, epochs=1, learning_rate=0.05)
    told = survey(task, spec, torch.device("cpu"))
    assert "fp16" in told.why_whole
    assert [part.parameters for part in told.parts] == [6090]
