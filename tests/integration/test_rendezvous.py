"""Aim: others meet in a worker's store even while that worker breaks off a generation of its own.

Method: a client in a process of its own; the group is told to break while the client is connected.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from peerloom.v1.trainer_pb2 import ConfigureGeneration
from peerloom.worker.group.process_group import Group
from peerloom.worker.group.rendezvous import Rendezvous, host_of

CLIENT = """
import sys
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", int(sys.argv[1]), is_master=False)
print("connected", flush=True)
sys.stdin.readline()
try:
    store.set("key", "value")
    print(store.get("key").decode(), flush=True)
except RuntimeError:
    print("broken", flush=True)
"""


@contextmanager
def client_of(rendezvous: Rendezvous) -> Iterator["subprocess.Popen[str]"]:
    port = rendezvous.address.rpartition(":")[2]
    command = [sys.executable, "-c", CLIENT, port]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "connected\n"
        yield client


def said_after_a_break(rendezvous: Rendezvous, store_address: str) -> str:
    """What a client gets from the store once a group, formed before it came, is broken."""
    group = Group(ConfigureGeneration(world_size=2), torch.device("cpu"), store_address=store_address)
    group._formed.set()  # nothing is being formed, so no thread goes on breaking
    with client_of(rendezvous) as client:
        group.break_from_outside("the test breaks it")
        said, _ = client.communicate("go on\n", timeout=60)
    return said.strip()


def test_a_break_leaves_those_alone_who_meet_in_our_store() -> None:
    """The next generation may meet there while we still leave the last one."""
    rendezvous = Rendezvous("127.0.0.1")
    assert said_after_a_break(rendezvous, rendezvous.address) == "value"
    assert said_after_a_break(rendezvous, "") == "broken", "a break reaches connections that it isn't told of"


def test_a_worker_that_can_t_listen_at_its_node_s_address_has_no_store() -> None:
    assert Rendezvous("198.51.100.1").address == ""


def test_where_a_worker_listens_is_where_its_node_is_reached_unless_no_interface_carries_that() -> None:
    assert host_of("10.1.2.3:7403", "eth0") == "10.1.2.3"
    assert host_of("[fd00::1]:7403", "eth0") == "[fd00::1]"
    assert host_of("203.0.113.5:7403", "") != "203.0.113.5"
