"""Which processes make up an embedded system."""

from pathlib import Path

import pytest

from peerloom.embedded.process_plan import plan_processes
from peerloom.errors import InvalidArgumentError

ALL = ("registry", "selector", "trainer")


def test_the_registry_comes_first_and_each_node_has_its_slots_and_its_folder() -> None:
    plans = plan_processes(Path("/s"), (3, 1), ALL, "info")
    assert [plan.name for plan in plans] == ["registry", "selector", "trainer", "node-1", "node-2"]
    assert plans[0].arguments == ("--state", "/s/registry", "--log-level", "info")
    assert plans[3].module == "peerloom.services.node_agent"
    assert " ".join(plans[3].arguments) == (
        "--state /s/nodes/node-1 --log-level info --name node-1 --slots 3 --threads-per-slot 1"
    )


def test_those_who_report_stop_before_those_they_report_to() -> None:
    plans = plan_processes(Path("/s"), (1,), ALL, "info")
    in_order = sorted(plans, key=lambda plan: plan.stop_phase)
    assert [plan.name for plan in in_order] == ["trainer", "node-1", "selector", "registry"]


def test_a_subset_of_services_can_be_chosen() -> None:
    plans = plan_processes(Path("/s"), (), ("registry", "selector"), "info")
    assert [plan.name for plan in plans] == ["registry", "selector"]


@pytest.mark.parametrize(
    ("slots", "services", "told"),
    [
        ((-1,), ALL, "slots of a node is -1, but must be from 0 to 1024."),
        ((1025,), ALL, "from 0 to 1024"),
        ((1,) * 65, ALL, "at most 64 nodes"),
        ((1,), ("registry", "bank"), "services is 'bank', but must be one of registry, selector, trainer."),
        ((1,), ("selector",), "a choice that has the registry in it"),
    ],
)
def test_what_can_not_be_is_refused_by_name_and_limit(
    slots: tuple[int, ...], services: tuple[str, ...], told: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        plan_processes(Path("/s"), slots, services, "info")
    assert told in caught.value.message
