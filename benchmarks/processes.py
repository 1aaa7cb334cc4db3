"""Starts the processes that are measured, each on its own core, and looks into them."""

import os
import pstats
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import psutil

from benchmarks.measure import ROOT

STOP_LIMIT_S = 30.0
SHOWN_FUNCTIONS = 20


@dataclass(frozen=True)
class Running:
    """A started process and the addresses that it printed; `metrics` is empty without `--metrics`."""

    address: str
    process: psutil.Process
    metrics: str = ""

    def processor_s(self) -> float:
        """Processor time that it has used so far, in seconds."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


def end_with_what_was_started() -> None:
    """From now on SIGTERM ends this program as Ctrl-C does: with its processes, cgroups and folders."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


@contextmanager
def pinned(cores: set[int]) -> Iterator[None]:
    """This thread, and all that it starts inside the block, run on these cores only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores & before or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def running(module: str, *arguments: str, core: int, interpreter: Sequence[str] = ()) -> Iterator[Running]:
    """Runs `python -m MODULE` on one core until the block ends; it prints `address=HOST:PORT` first."""
    command = [sys.executable, *interpreter, "-m", module, *arguments]
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    with tempfile.TemporaryFile() as log:
        with pinned({core}):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)
        assert process.stdout is not None
        try:
            line = process.stdout.readline().decode().strip()
            if not line.startswith("address="):
                log.seek(0)
                raise SystemExit(f"{module} did not start: {log.read().decode(errors='replace')}")
            address, _, metrics = line.removeprefix("address=").partition(" metrics=")
            yield Running(address, psutil.Process(process.pid), metrics)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


@contextmanager
def profiled(module: str, *arguments: str, core: int, title: str) -> Iterator[tuple[Running, list[str]]]:
    """The same under cProfile; after the block the list holds the text of the dearest functions."""
    report: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "profile"
        interpreter = ("-m", "cProfile", "-o", str(out))
        with running(module, *arguments, core=core, interpreter=interpreter) as process:
            yield process, report
        report.append(f"{title}\n\n{_dearest(out)}")


def _dearest(path: Path) -> str:
    text = StringIO()
    stats = pstats.Stats(str(path), stream=text).strip_dirs()
    stats.sort_stats("tottime").print_stats(SHOWN_FUNCTIONS)
    lines = text.getvalue().splitlines()
    return "\n".join(line.rstrip() for line in lines if str(path) not in line).strip() + "\n"
