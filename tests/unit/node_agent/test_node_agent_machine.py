"""What the machine lends follows from its GPUs and the owner's settings; addresses lead to an interface."""

import pytest

from peerloom.errors import ConfigurationError
from peerloom.services.node_agent.config import NodeConfig
from peerloom.services.node_agent.membership.node_key import valid_name
from peerloom.services.node_agent.membership.reachability import advertised_address, choose_interface
from peerloom.services.node_agent.owner.inventory import (
    Gpu,
    describe_machine,
    is_known_task,
    parse_gpus,
    visible_gpus,
)
from peerloom.v1.common_pb2 import Accelerator

PROCESSOR = Accelerator(kind="cpu", model="a processor", count=1, memory_bytes=64)
BIG, SMALL = Gpu("GPU-aa", "Big", 2**30), Gpu("GPU-bb", "Small", 2**20)


def test_the_drivers_list_is_read_line_by_line() -> None:
    text = "GPU-aa, NVIDIA H200, 143771\n\nGPU-bb, NVIDIA T4, [N/A]\nNo devices were found\n"
    assert parse_gpus(text) == [Gpu("GPU-aa", "NVIDIA H200", 143771 * 1024**2)]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, [BIG, SMALL]),
        ("", []),
        ("1", [SMALL]),
        ("1,0", [SMALL, BIG]),
        ("GPU-b", [SMALL]),
        ("0,7,1", [BIG]),
        ("-1", []),
    ],
)
def test_hidden_gpus_are_not_lent(setting: str | None, expected: list[Gpu]) -> None:
    assert visible_gpus([BIG, SMALL], setting) == expected


@pytest.mark.parametrize(
    ("gpus", "slots", "accelerator", "expected"),
    [
        ([], -1, "auto", (1, "cpu", 8)),
        ([], 3, "auto", (3, "cpu", 2)),
        ([], 99, "auto", (99, "cpu", 1)),
        ([BIG, SMALL], -1, "auto", (2, "cuda", 4)),
        ([BIG, SMALL], 1, "auto", (1, "cuda", 8)),
        ([BIG], 3, "auto", (3, "cpu", 2)),  # a GPU serves one slot only
        ([BIG], -1, "cpu", (1, "cpu", 8)),
        ([BIG], 0, "auto", (0, "cpu", 8)),
    ],
)
def test_slots_and_their_kind(
    gpus: list[Gpu], slots: int, accelerator: str, expected: tuple[int, str, int]
) -> None:
    machine = describe_machine(gpus, slots, accelerator, 0, 8, PROCESSOR)
    assert (machine.slots, machine.accelerator_kind, machine.threads) == expected


def test_equal_gpus_are_counted_and_a_slot_has_the_smallest_memory() -> None:
    machine = describe_machine([BIG, SMALL, BIG], -1, "cuda", 1, 8, PROCESSOR)
    assert [(found.model, found.count) for found in machine.accelerators] == [("Big", 2), ("Small", 1)]
    assert machine.device_memory_bytes == 2**20


def test_more_cuda_slots_than_gpus_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="1 GPUs to lend"):
        describe_machine([BIG], 2, "cuda", 0, 8, PROCESSOR)
    with pytest.raises(ConfigurationError, match="0 GPUs to lend"):
        describe_machine([], -1, "cuda", 0, 8, PROCESSOR)


@pytest.mark.parametrize(
    ("setting", "listening", "expected"),
    [
        ("", "127.0.0.1:70", "127.0.0.1:70"),
        ("node.example", "0.0.0.0:70", "node.example:70"),
        ("node.example:80", "0.0.0.0:70", "node.example:80"),
        ("[fd00::1]", "[::]:70", "[fd00::1]:70"),
        ("[fd00::1]:80", "[::]:70", "[fd00::1]:80"),
    ],
)
def test_the_address_to_tell(setting: str, listening: str, expected: str) -> None:
    assert advertised_address(setting, listening, "127.0.0.1:1") == expected


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", "lo"),
        ("127.0.0.9", "lo"),
        ("192.168.0.5", "eth0"),
        ("fe80::1", "eth0"),
        ("8.8.8.8", ""),
    ],
)
def test_the_interface_that_carries_an_address(address: str, expected: str) -> None:
    carried = {"lo": ["127.0.0.1", "::1"], "eth0": ["192.168.0.5", "fe80::1%eth0"]}
    assert choose_interface(address, carried) == expected


@pytest.mark.parametrize(
    ("host", "name"),
    [("Alice's.Laptop", "alice-s-laptop"), ("---", "node"), ("x" * 80, "x" * 63), ("ä", "node")],
)
def test_any_host_name_becomes_a_valid_node_name(host: str, name: str) -> None:
    assert valid_name(host) == name


@pytest.mark.parametrize(
    ("task", "known"),
    [
        ("digits", True),
        ("json.decoder:JSONDecoder", True),
        ("no_such_package_anywhere.models:Net", False),
        (":Net", False),
        (".relative:Net", False),
    ],
)
def test_a_task_is_known_if_built_in_or_installed(task: str, known: bool) -> None:
    assert is_known_task(task) == known


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"slots": -2}, "slots is -2"),
        ({"name": "Not Valid"}, "name is 'Not Valid'"),
        ({"labels": ("room",)}, "room=VALUE"),
        ({"accelerator": "tpu"}, "auto, cpu or cuda"),
        ({"log_level": "loud"}, "log_level"),
        ({"reservation_s": 0.0}, "reservation_s"),
        ({"worker_command": ()}, "worker_command"),
    ],
)
def test_a_wrong_setting_is_named(setting: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        NodeConfig(**setting)  # type: ignore[arg-type]  # a table of settings


def test_labels_are_pairs() -> None:
    assert NodeConfig(labels=("room=b12", "owner=lab=3")).label_map() == {"room": "b12", "owner": "lab=3"}
