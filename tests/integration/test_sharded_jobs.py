"""Aim: a model in shards trains over real nodes as one process does, and whoever is killed no step is lost.

Method: one embedded system with a spare slot; a job that nothing disturbs, and jobs whose workers are killed.
"""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from divided_jobs import JOB_LIMIT_S, check_no_step_is_lost, started_system, trained

from peerloom import Client, Embedded, StepCommitted
from peerloom.errors import InvalidArgumentError

# Named starts: slots that seem to differ would be given other parts, and be told so.
PLAN = "sharded=3:7"
PARAMETERS = 6_090  # of digits
pytestmark = pytest.mark.timeout(200)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Embedded, Client]]:
    with started_system(tmp_path_factory.mktemp("system")) as started:
        yield started


def test_each_worker_may_die_and_no_step_is_lost(system: tuple[Embedded, Client]) -> None:
    assert "3 shards begin from the beginning" in check_no_step_is_lost(*system, PLAN)


def test_it_goes_on_from_where_a_pipeline_ended(system: tuple[Embedded, Client]) -> None:
    """Files have one form, whatever the plan was; each worker holds its shard, all have computed."""
    _, client = system
    _, _, first = trained(client, "pipeline=2", epochs=3)
    assert first.model is not None
    handle = client.train(
        "digits", plan="sharded=2", epochs=1, requests=4, initial_model=first.model.digest, seed=4
    )
    result = handle.result(JOB_LIMIT_S)
    assert result.succeeded, result.reason
    assert result.metric is not None
    assert first.metric is not None
    assert result.metric > first.metric - 0.1
    status = handle.status()
    assert status.spec.plan == "sharded=2"
    # Of two shards each sends its values twice but for the last unit's, and the gradients of the other.
    steps = [event for event in handle.watch() if isinstance(event, StepCommitted)]
    assert all(4 * PARAMETERS < step.communicated_bytes < 10 * PARAMETERS for step in steps), steps[0]
    held = sorted((w.stage.first_layer, w.stage.end_layer) for w in status.workers if w.stage is not None)
    assert held[0][0] == 0
    assert held[-1][1] == 8
    assert all(one[1] == two[0] for one, two in pairwise(held))


def test_what_it_can_not_be_is_refused_with_the_reason(system: tuple[Embedded, Client]) -> None:
    _, client = system
    with pytest.raises(InvalidArgumentError, match="without micro_batches"):
        client.train("digits", plan="sharded=2,micro_batches=4")
    with pytest.raises(InvalidArgumentError, match="sync"):
        client.train("digits", plan="sharded=2", sync="ring")
    result = client.train("digits", plan="sharded=7", requests=7).result(JOB_LIMIT_S)
    assert result.state in ("no_compute", "failed")
