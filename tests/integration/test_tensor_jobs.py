"""Aim: a model whose layers are cut in pieces trains over real nodes as one process does, whoever is killed.

Method: one embedded system with a spare slot; a job that nothing disturbs, and jobs whose workers are killed.
"""

from collections.abc import Iterator

import pytest
from divided_jobs import JOB_LIMIT_S, check_no_step_is_lost, started_system, trained

from peerloom import Client, Embedded
from peerloom.errors import InvalidArgumentError

pytestmark = pytest.mark.timeout(200)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Embedded, Client]]:
    with started_system(tmp_path_factory.mktemp("system")) as started:
        yield started


def test_each_worker_may_die_and_no_step_is_lost(system: tuple[Embedded, Client]) -> None:
    assert "3 pieces begin from the beginning" in check_no_step_is_lost(*system, "tensor=3")


def test_it_goes_on_from_where_a_pipeline_ended_and_the_other_way_round(
    system: tuple[Embedded, Client],
) -> None:
    """Files have one form, whatever the plan was; each worker of a hybrid has a piece of its stage."""
    _, client = system
    _, status, first = trained(client, "tensor=2", epochs=3)
    stages = [worker.stage for worker in status.workers if worker.stage is not None]
    assert sorted((stage.pieces, stage.piece) for stage in stages) == [(2, 0), (2, 1)]
    assert all((stage.first_layer, stage.end_layer) == (0, 8) for stage in stages)
    # What is cut each has a part of, and a few numbers both.
    assert 6_090 <= sum(stage.parameters for stage in stages) < 6_090 * 1.1
    assert all(stage.exchange_s > 0 for stage in stages)
    metric = first.metric
    for plan in ("pipeline=2", "pipeline=2,tensor=2", "data"):
        assert first.model is not None
        handle = client.train(
            "digits", plan=plan, epochs=1, requests=4, initial_model=first.model.digest, seed=4
        )
        first = handle.result(JOB_LIMIT_S)
        assert first.succeeded, first.reason
        assert first.metric is not None
        assert metric is not None
        assert first.metric > metric - 0.1


def test_what_it_can_not_be_is_refused_with_the_reason(system: tuple[Embedded, Client]) -> None:
    _, client = system
    with pytest.raises(InvalidArgumentError, match="without widths"):
        client.train("digits", plan="pipeline=2,tensor=2,widths=2/1")
    with pytest.raises(InvalidArgumentError, match="without order"):
        client.train("digits", plan="tensor=2,order=gpipe")
    with pytest.raises(InvalidArgumentError, match="sync"):
        client.train("digits", plan="tensor=2", sync="ring")
