"""Following a job until it ends: a live bar on a terminal, plain lines elsewhere, both on standard error."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

import click

from peerloom import EpochFinished, JobEvent, StateChanged, StepCommitted
from peerloom.cli.background_tracking import JobTrackers
from peerloom.cli.events import describe, to_object
from peerloom.cli.exits import INTERRUPTED
from peerloom.cli.output import print_json_line, say
from peerloom.kit.printable import escaped

if TYPE_CHECKING:
    from rich.progress import Progress

Tell = Callable[[JobEvent], None]


class Handle(Protocol):
    """What is needed of a job's handle."""

    @property
    def id(self) -> str:
        """The job's id."""

    def watch(self, after: int = 0) -> Iterable[JobEvent]:
        """Its events."""

    def track(self, *places: str, tell: Callable[[str], object]) -> None:
        """Tells trackers of it until it has ended."""


def watch_job(
    job: Handle,
    output: str = "table",
    *,
    after: int = 0,
    greeting: str = "",
    tell_by: Tell | None = None,
    places: Sequence[str] = (),
) -> str:
    """Tells of a job's events until it ends, after a `greeting`; returns its last state.

    `tell_by` does that in place of what `output` says. The trackers at `places` are told of it meanwhile.
    Ctrl-C ends the watching, not the job: it says so, and the command ends with 130.
    """
    state = ""
    try:
        if greeting:
            say(greeting, err=True)
        trackers = JobTrackers(job, places) if places else None
        with nullcontext(tell_by) if tell_by else _teller(output) as tell:
            for event in job.watch(after=after):
                tell(event)
                if isinstance(event, StateChanged):
                    state = event.state
        if trackers:
            trackers.finish()
    except KeyboardInterrupt:
        say(f"\n{job.id} goes on without you. Come back with: peerloom jobs watch {job.id}", err=True)
        click.get_current_context().exit(INTERRUPTED)
    return state


@contextmanager
def _teller(output: str) -> Iterator[Tell]:
    if output == "json":
        yield lambda event: print_json_line(to_object(event))
    elif output == "table" and sys.stderr.isatty():
        with live_bar() as tell:
            yield tell
    else:
        yield _tell_line


def _tell_line(event: JobEvent) -> None:
    if line := describe(event):
        say(line, err=True)


@contextmanager
def live_bar(tell_line: Callable[[str], None] | None = None) -> Iterator[Tell]:
    """A bar of steps on standard error with loss, speed and test metric; other events stand above it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    console = Console(stderr=True, highlight=False)
    whole = Column(no_wrap=True)
    columns = (
        TextColumn("{task.description}", table_column=whole, markup=False),
        BarColumn(bar_width=16),  # with the figures it fits 80 columns
        TextColumn("{task.fields[figures]}", table_column=whole, markup=False),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield _BarTeller(progress, tell_line or console.out).tell


class _BarTeller:
    """Keeps the bar's figures."""

    def __init__(self, progress: "Progress", tell_line: Callable[[str], None]) -> None:
        self._progress = progress
        self._tell_line = tell_line
        self._task = progress.add_task("waiting for compute", total=None, figures="")
        self._metric = ""

    def tell(self, event: JobEvent) -> None:
        if isinstance(event, StepCommitted):
            self._step(event)
            return
        if isinstance(event, EpochFinished):
            self._metric = f"  {escaped(event.metric_name)} {event.metric:.4f}"
        if isinstance(event, StateChanged):
            self._progress.update(self._task, description=event.state.replace("_", " "))
        if line := describe(event):
            self._tell_line(line)

    def _step(self, event: StepCommitted) -> None:
        done = f"{event.step}/{event.total_steps or '?'}"
        logged = "".join(f"  {escaped(name)} {value:.4g}" for name, value in sorted(event.metrics.items()))
        self._progress.update(
            self._task,
            completed=event.step,
            total=event.total_steps,
            description=f"epoch {event.epoch}",
            figures=f"{done}  loss {event.loss:.4f}  {event.samples_per_s:,.0f} samples/s"
            f"{logged}{self._metric}",
        )
