"""What somebody on the wire between two nodes sees of a training: all of it, or with a door nothing."""

import asyncio
import os
import re
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from door_system import DoorSystem
from free_networks import free_network
from node_agent_parts import StartService
from packet_capture import Capture, keys_in, keys_seen

from peerloom.client.async_client import AsyncClient

LIMIT_S = 150.0
pytestmark = pytest.mark.timeout(240)
MARK = b"peerloom"
# Its buffer holds the mark, which the trained model carries to who keeps it; the gradient of `weight` is one
# number, again and again.
TASK = """
import torch
from peerloom.worker.task import Split, Task
class Marked(Task):
    epochs, batch_size, learning_rate = 2, 32, 1e-6
    def model(self):
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.zeros(16384))
                mark = torch.frombuffer(bytearray(b"peerloom" * 4096), dtype=torch.float32)
                self.register_buffer("mark", mark)
            def forward(self, x):
                return x + self.weight.sum()
        return Model()
    def data(self):
        split = Split(torch.ones(128, 1), torch.zeros(128, 1))
        return split, split
    def loss(self, outputs, targets):
        return (outputs - targets).square().mean(dim=1)
    def metric(self, outputs, targets):
        return (outputs - targets).abs().mean(dim=1)
"""


@contextmanager
def wire() -> Iterator[tuple[str, str, str, str]]:
    """A namespace at the other end of a cable: its name, our interface, our address and the one there."""
    if os.geteuid() != 0:
        pytest.skip("needs root: run as root")
    mark = secrets.token_hex(3)
    space, ours, theirs = f"plw-{mark}", f"plo{mark}", f"plt{mark}"
    network = free_network()
    near, far = f"{network}.1", f"{network}.2"
    try:
        ip("netns", "add", space)
        ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", space)
        ip("address", "add", f"{near}/30", "dev", ours)
        ip("link", "set", ours, "up")
        ip("-n", space, "address", "add", f"{far}/30", "dev", theirs)
        for interface in (theirs, "lo"):
            ip("-n", space, "link", "set", interface, "up")
        yield space, ours, near, far
    finally:
        subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)


def ip(*arguments: str) -> None:
    """Calls iproute2."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


async def trained(client: AsyncClient) -> None:
    """A training of both nodes, to a model that both keep."""
    async with client:
        job = await client.train("marked:Marked", requests=2, min_workers=2)
        (await job.result()).raise_for_state()


def numbers_again_and_again(seen: bytes) -> list[bytes]:
    """Runs of one number, 64 times or more: what gradients of this task look like."""
    found = re.finditer(rb"(....)\1{63,}", seen, re.DOTALL)
    return [match[1] for match in found if len(set(match[1])) > 1]


async def start_plain(start: StartService, folder: Path, space: str, near: str, far: str) -> str:
    """The same system without a door; the registry's address."""
    plain = ("--allow-plain", "--log-level", "warning")
    registry = start("registry", "--state", str(folder / "registry"), "--listen", f"{near}:0", *plain)
    own = (*plain, "--registry", registry.address)
    for name in ("selector", "trainer"):
        start(name, "--state", str(folder / name), "--listen", f"{near}:0", *own)
    for number, (host, inside) in enumerate(((near, ""), (far, space)), 1):
        node = ("--name", f"node-{number}", "--slots", "1", "--threads-per-slot", "1")
        state = ("--state", str(folder / f"node-{number}"), "--listen", f"{host}:0")
        start("node_agent", *state, *own, *node, inside=inside, PYTHONPATH=str(folder))
    return str(registry.address)


async def all_alive(client: AsyncClient) -> None:
    """Waits until both nodes live and the selector and the trainer are listed."""
    alive = listed = 0
    while alive < 2 or listed < 3:
        alive, listed = len(await client.nodes(states=["alive"])), len(await client.services())


async def test_without_a_door_the_wire_shows_parameters_and_gradients(
    start_service: StartService, tmp_path: Path
) -> None:
    """So the next test can fail: what it looks for is there to be seen."""
    (tmp_path / "marked.py").write_text(TASK)
    with wire() as (space, interface, near, far), Capture(interface) as capture:
        async with asyncio.timeout(LIMIT_S):
            address = await start_plain(start_service, tmp_path, space, near, far)
            async with AsyncClient(address) as client:
                await all_alive(client)
            await trained(AsyncClient(address))
    assert MARK * 8 in capture.seen
    assert numbers_again_and_again(capture.seen)


async def test_with_a_door_the_wire_shows_neither_parameters_nor_gradients_nor_keys(
    start_service: StartService, tmp_path: Path
) -> None:
    (tmp_path / "marked.py").write_text(TASK)
    with wire() as (space, interface, near, far), Capture(interface) as capture:
        async with asyncio.timeout(LIMIT_S):
            system = DoorSystem(tmp_path, start_service, host=near)
            await system.start_all(("ada", "bob"), {"node-2": (far, space)}, PYTHONPATH=str(tmp_path))
            await trained(system.client())
    seen = capture.seen
    assert len(seen) > 2 * 4096 * len(MARK), "the model and the gradients have crossed"
    assert MARK * 2 not in seen
    assert numbers_again_and_again(seen) == []
    assert len(keys_in(tmp_path)) >= 6, "those of registry, operator, selector, trainer and two nodes"
    assert keys_seen(tmp_path, seen) == []
