"""Stands in for an agent's inference process: the real serving in a simulated process beside the agent."""

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from peerloom.services.node_agent.inference_process import ReachedAt
from peerloom.testing.simulated_processes import Process, ProcessRun

START_S = (0.5, 2.0)  # a real one imports torch
Serve = Callable[[ProcessRun, Path, Callable[[int], None]], Coroutine[Any, Any, None]]


class ScriptedInference:
    """What the agent needs of its inference process. `serve` is that process's main, told where to listen."""

    def __init__(self, agent: ProcessRun, serve: Serve, reached_at: ReachedAt) -> None:
        self._agent, self._serve, self._reached_at = agent, serve, reached_at
        self._starts = 0
        self._process: Process | None = None
        self._listens, self._ended = asyncio.Event(), asyncio.Event()
        self._port = 0

    @property
    def port(self) -> int:
        """Where it listens; 0 while none runs."""
        return self._port

    async def start(self) -> tuple[str, float]:
        """Its address, and the seconds that starting it took."""
        world = self._agent.world
        began_s = world.loop.time()
        if self._process is None:
            self._begin()
        await self._listens.wait()
        return await self._reached_at(self._port), world.loop.time() - began_s

    async def stop(self, grace_s: float) -> None:
        """Asks it to end, and kills it after the grace."""
        process = self._process
        if process is None:
            return
        run = process.run
        if run is None:  # it had not begun, and won't
            self._gone(process)
        elif run.stop is not None:
            run.context.run(run.stop)
        try:
            await asyncio.wait_for(self._ended.wait(), grace_s)
        except TimeoutError:
            process.kill("its agent made it end")

    def _begin(self) -> None:
        world, agent = self._agent.world, self._agent
        self._starts += 1
        name = f"{agent.name}.inference{agent.number}.{self._starts}"
        process = self._process = world.add(name, agent.host, self._main, agent.process.disk)
        self._listens.clear()
        self._ended.clear()
        process.restarts = False
        process.on_end = lambda reason: self._gone(process)
        agent.children.append(process)
        world.loop.later(world.chance.uniform(*START_S), self._launch, process)

    def _launch(self, process: Process) -> None:
        if self._process is process and not self._agent.is_dead:
            process.start()

    async def _main(self, run: ProcessRun) -> None:
        folder = self._agent.process.disk.folder / "inference"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        await self._serve(run, folder, self._listening_at)

    def _listening_at(self, port: int) -> None:
        self._port = port
        self._listens.set()

    def _gone(self, process: Process) -> None:
        self._agent.world.processes.pop(process.name, None)
        self._process, self._port = None, 0
        self._ended.set()
