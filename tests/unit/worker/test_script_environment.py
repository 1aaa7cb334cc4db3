"""The variables that torchrun would set, by hand: three nodes with two, one and two slots."""

import pytest

from peerloom.worker.script.environment import (
    ScriptPlace,
    elastic_variables,
    script_environment,
    visible_devices,
)

NODES, SLOTS = ["ada", "bob", "ada", "cyd", "cyd"], [0, 0, 2, 1, 3]


def place(rank: int) -> ScriptPlace:
    """One process's."""
    return ScriptPlace(rank, NODES, SLOTS, "10.0.0.1", 4711)


@pytest.mark.parametrize(
    ("rank", "local_rank", "local_world_size", "group_rank"),
    [(0, 0, 2, 0), (1, 0, 1, 1), (2, 1, 2, 0), (3, 0, 2, 2), (4, 1, 2, 2)],
)
def test_ranks_on_a_node_and_of_it(
    rank: int, local_rank: int, local_world_size: int, group_rank: int
) -> None:
    values = elastic_variables(place(rank), "job-1", 2, 3)
    assert values["RANK"] == str(rank)
    assert values["LOCAL_RANK"] == str(local_rank)
    assert values["LOCAL_WORLD_SIZE"] == str(local_world_size)
    assert values["GROUP_RANK"] == str(group_rank)
    assert (values["WORLD_SIZE"], values["GROUP_WORLD_SIZE"]) == ("5", "3")


def test_what_torchrun_tells_besides() -> None:
    values = elastic_variables(place(0), "job-1", 2, 3)
    assert (values["MASTER_ADDR"], values["MASTER_PORT"]) == ("10.0.0.1", "4711")
    assert values["TORCHELASTIC_RESTART_COUNT"] == "2"
    assert values["TORCHELASTIC_MAX_RESTARTS"] == "3"
    assert values["TORCHELASTIC_RUN_ID"] == "job-1"
    assert values["TORCHELASTIC_USE_AGENT_STORE"] == "True"


def test_card_local_rank_is_one_s_own() -> None:
    assert visible_devices(place(2), "cuda", None) == "0,2"
    assert visible_devices(place(3), "cuda", "4,5,6,7") == "5,7"
    assert visible_devices(place(3), "cpu", "4,5,6,7") == ""


def test_the_worker_s_environment_goes_on_and_threads_are_those_of_its_slot() -> None:
    found = script_environment({"PATH": "/bin"}, place(1), "cpu", 4, {"RANK": "1"})
    assert found == {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "4", "RANK": "1"}
    assert script_environment({"OMP_NUM_THREADS": "7"}, place(1), "cpu", 4, {})["OMP_NUM_THREADS"] == "7"
