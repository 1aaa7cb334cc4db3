"""Each background task of an agent has an owner: when one ends from inside, the agent stops in order."""

import asyncio
from pathlib import Path

import psutil
import pytest
from node_agent_parts import LIMIT_S, worker_command

from peerloom.kit.server import Endpoint, Server
from peerloom.kit.tasks import BackgroundTaskError
from peerloom.services.node_agent.__main__ import SERVICES, serve
from peerloom.services.node_agent.agent_runtime import look_at_machine
from peerloom.services.node_agent.config import NodeConfig

TASKS = (
    "artifact advertising",
    "artifact uses",
    "evidence",
    "leaving",
    "measuring",
    "owner policy",
    "registration",
    "worker pool",
    "worker starter",
)


@pytest.mark.parametrize("name", TASKS)
async def test_a_task_that_ends_is_named_and_stops_the_agent_in_order(tmp_path: Path, name: str) -> None:
    """No registry is needed: the agent tries to register until its task is ended."""
    config = NodeConfig(
        state=str(tmp_path / "state"),
        registry="127.0.0.1:9",
        slots=1,
        inference=False,
        worker_command=tuple(worker_command(tmp_path).split(",")),
    )
    config.state_folder().mkdir()
    before = psutil.Process().children()
    server = Server(Endpoint(config.listen), SERVICES)
    serving = asyncio.create_task(serve(config, server, await look_at_machine(config, None)))
    async with asyncio.timeout(LIMIT_S):
        while not set(TASKS) <= set(server.running_tasks):  # noqa: ASYNC110  # nobody tells when all are started
            await asyncio.sleep(0)
        server.running_tasks[name].cancel()
        with pytest.raises(BackgroundTaskError, match=f"'{name}' was cancelled"):
            await serving
    assert server.running_tasks == {}
    assert psutil.Process().children() == before, "what forks workers has ended too"
