"""A service's process: its end with whoever started it, by a signal, and by a wrong setting."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

LIMIT_S = 60.0
SERVICE = """
import asyncio
from peerloom.kit.logs import configure_logs
from peerloom.kit.server import Endpoint, Server, run

async def main():
    configure_logs("tester")
    async with Server(Endpoint("127.0.0.1:0"), []) as server:
        await server.start({})
        await server.serve_until_stopped()

run(main)
"""


@contextmanager
def running(text: str, *, lifeline: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", text],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **({"PEERLOOM_LIFELINE": str(lifeline)} if lifeline else {})},
        pass_fds=[lifeline] if lifeline else [],
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_service_ends_with_the_process_that_started_it() -> None:
    """The starter holds one end of a pipe; the kernel closes it however the starter dies."""
    ours, theirs = os.pipe()[::-1]
    with running(SERVICE, lifeline=theirs) as process:
        os.close(theirs)
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"address=127.0.0.1:")
        os.close(ours)
        _, log = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, log
    assert b"service_stopped" in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_stops_gracefully_on_a_signal(number: signal.Signals) -> None:
    with running(SERVICE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(number)
        _, log = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, log
    assert b"service_stopped" in log


def test_an_error_while_setting_up_is_one_line_and_status_2() -> None:
    script = (
        "from peerloom.errors import ConfigurationError\nfrom peerloom.kit.server import run\n"
        "async def main(): raise ConfigurationError('unknown flag --lisen')\nrun(main)"
    )
    with running(script) as process:
        out, log = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out, log) == (2, b"", b"error: unknown flag --lisen\n")
