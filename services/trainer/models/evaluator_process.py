"""The process that evaluates models, as the trainer holds it: started when first needed, let go when idle."""

import asyncio
import importlib.util
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from peerloom.errors import UnavailableError
from peerloom.kit.logs import get_logger
from peerloom.sandbox.process_environment import clean_environment
from peerloom.worker.evaluator.evaluation_order import (
    READY,
    EvaluationAnswer,
    EvaluationOrder,
    Unable,
    answer_from_json,
)

COMMAND = (sys.executable, "-m", "peerloom.worker.evaluator")
START_LIMIT_S = 300.0  # importing torch takes seconds, from a cold disk on a busy machine minutes
# Beyond an order's own limit, which the process keeps itself.
GRACE_S = 30.0
# It takes up 230 MB meanwhile; starting it again takes 2 s of a core.
IDLE_S = 300.0
_NEEDS = ("torch", "safetensors")
_log = get_logger()


class EvaluatorProcess:
    """At most one process, for one order at a time; `keep` must run for it to be let go.

    It holds no lock and no port, and ends with its standard input, so also when the trainer is killed.
    """

    def __init__(self, command: Sequence[str] = COMMAND, idle_s: float = IDLE_S) -> None:
        self._command, self._idle_s = command, idle_s
        self._process: asyncio.subprocess.Process | None = None
        self._using = asyncio.Lock()
        self._wanted = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return self._process.pid if self._process is not None else None

    def prepare(self) -> None:
        """Starts it if it isn't there, without waiting."""
        self._wanted.set()

    async def keep(self) -> None:
        """Starts what is prepared for, and ends what nobody has wanted for long, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._idle_s if self._process is not None else None):
                    await self._wanted.wait()
            except TimeoutError:
                async with self._using:
                    await self._end()
                continue
            self._wanted.clear()
            if not _missing():
                with suppress(UnavailableError):  # whoever orders hears of it
                    async with self._using:
                        await self._started()

    async def evaluate(self, order: EvaluationOrder) -> EvaluationAnswer:
        """The process's answer, or why there is none. Cancelled, it ends what is evaluated."""
        if missing := _missing():
            return Unable(
                "NO_TORCH",
                f"the trainer's installation has no {missing}: install peerloom[train] where it runs, or say "
                "--evaluate off",
            )
        self._wanted.set()
        async with self._using:
            try:
                return await self._ask(await self._started(), order)
            except UnavailableError as error:
                await self._end()
                return Unable("EVALUATOR_ENDED", error.message)
            except BaseException:
                await self._end()
                raise

    async def close(self) -> None:
        """Ends the process, and whatever it evaluates."""
        await self._end()

    async def _started(self) -> asyncio.subprocess.Process:
        """The process, once all is imported there. Raises UnavailableError when it can't be started."""
        if self._process is not None and self._process.returncode is None:
            return self._process
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=clean_environment(os.environ, is_confined=True),
                start_new_session=True,  # a Ctrl-C at the terminal is for the trainer
            )
            line = await self._read(self._process, START_LIMIT_S)
        except OSError as error:
            raise UnavailableError(f"the evaluator can't be started: {error}") from error
        except BaseException:
            await self._end()
            raise
        if line != READY:
            await self._end()
            raise UnavailableError(f"the evaluator didn't start: {line}; the trainer's log tells why")
        _log.info("evaluator_started", pid=self._process.pid)
        return self._process

    async def _ask(self, process: asyncio.subprocess.Process, order: EvaluationOrder) -> EvaluationAnswer:
        assert process.stdin is not None
        try:
            process.stdin.write(order.to_json().encode() + b"\n")
            await process.stdin.drain()
        except OSError as error:
            raise UnavailableError(f"the evaluator's process has ended: {error}") from error
        line = await self._read(process, order.limit_s + GRACE_S)
        try:
            return answer_from_json(line)
        except (KeyError, TypeError, ValueError) as error:
            raise UnavailableError(f"the evaluator answered {line[:80]!r}") from error

    async def _read(self, process: asyncio.subprocess.Process, limit_s: float) -> str:
        assert process.stdout is not None
        try:
            async with asyncio.timeout(limit_s):
                line = await process.stdout.readline()
        except TimeoutError:
            raise UnavailableError(f"the evaluator said nothing for {limit_s:g} s") from None
        if not line:
            raise UnavailableError(f"the evaluator's process ended with status {await process.wait()}")
        return line.decode().strip()

    async def _end(self) -> None:
        process = self._process
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()  # the kernel ends what it evaluates
        await process.wait()
        self._process = None


def _missing() -> str:
    """A module that evaluating needs and that isn't installed; "" if all are."""
    return next((name for name in _NEEDS if importlib.util.find_spec(name) is None), "")
