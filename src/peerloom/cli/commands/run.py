"""`peerloom run`."""

import threading
from pathlib import Path
from typing import Any

import click

from peerloom import GenerationFormed, JobEvent, JobHandle, LogLine, PeerloomError, StateChanged
from peerloom.cli.events import describe
from peerloom.cli.exits import FAILED, code_of_script
from peerloom.cli.invocation import system_options
from peerloom.cli.name_completion import POLICY
from peerloom.cli.output import say
from peerloom.cli.parameters import Pair, check_followed, track_option
from peerloom.cli.summary import ending_of
from peerloom.cli.watching import watch_job
from peerloom.errors import InvalidArgumentError
from peerloom.kit.printable import escaped

SILENCE_LIMIT_S = 30.0  # once the job has ended, what it printed lies ready: no line takes so long


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("script", type=click.Path())
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.option("--requests", type=int, help="How many nodes may be asked for compute.  [default: 3]")
@click.option("--min-workers", type=int, help="Fewest workers to go on with.  [default: 1]")
@click.option("--max-workers", type=int, help="Most workers to use.  [default: all that the nodes give]")
@click.option(
    "--max-restarts", type=int, help="How often to start it again after a failure of its own.  [default: 3]"
)
@click.option(
    "--code",
    default="",
    help="Folder that SCRIPT lies in, sent whole; or its digest.  [default: none]",
)
@click.option(
    "--policy", type=POLICY, default="", metavar="NAME", help="How to choose nodes; see 'peerloom policies'."
)
@click.option("--name", default="", help="A name for people.")
@click.option(
    "--min-slots", type=int, default=1, show_default=True, help="Slots a node must lend; 0: ask blindly."
)
@click.option("--accelerator", default="", help="What each slot must be, cuda or cpu.  [default: any]")
@click.option("--label", "labels", type=Pair(), multiple=True, help="A label that each node must carry.")
@click.option(
    "--collect",
    type=click.Path(),
    default="",
    metavar="FOLDER",
    help="Write what the script left where it ran to this new folder.  [default: nowhere]",
)
@track_option
@click.option("--detach", is_flag=True, help="Print the job's id and return.")
@system_options
@click.pass_context
def run(
    ctx: click.Context,
    /,
    script: str,
    arguments: tuple[str, ...],
    collect: str,
    detach: bool,
    places: tuple[str, ...],
    labels: Any,
    **options: Any,
) -> None:
    """Run a training script as torchrun would, and show what it prints.

    One process for each slot that the nodes give, with RANK, WORLD_SIZE and the rest set; each line that one
    prints comes after its rank. Ends with the script's exit status. Ctrl-C leaves the job running.
    """
    check_followed(places, detach)
    if collect and Path(collect).exists():
        raise InvalidArgumentError.of_field("collect", collect, "a folder that doesn't exist yet")
    with ctx.obj.client() as client:
        job = client.run_script(script, arguments, labels=dict(labels), **options)
        if detach:
            say(job.id)
            return
        output = _Output(job)
        state = watch_job(job, greeting=f"{job.id} submitted", tell_by=_tell, places=places)
        output.finish()
        result = job.status().result
        if result:
            say(f"{job.id} {escaped(ending_of(result))}", err=True)
        code = code_of_script(state, result.exit_status if result else None)
        if collect and not _collect(job, collect):
            code = code or FAILED
    ctx.exit(code)


def _collect(job: JobHandle, folder: str) -> bool:
    try:
        say(f"what the script left is in {job.fetch_files(folder)}", err=True)
    except PeerloomError as error:  # the script's own status says more
        say(f"error: {escaped(error.message)}", err=True)
        return False
    return True


def _tell(event: JobEvent) -> None:
    if isinstance(event, StateChanged) and event.state == "running":
        say(f"running: {escaped(event.reason)}", err=True)
    elif not isinstance(event, GenerationFormed) and (line := describe(event)):
        say(line, err=True)


class _Output:
    """Shows what a script prints, in a thread of its own, from the beginning on."""

    def __init__(self, job: JobHandle) -> None:
        self._job, self._shown = job, 0
        self._thread = threading.Thread(target=self._show_all, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """The job has ended: waits for the last line, as long as lines come."""
        seen = -1
        while self._thread.is_alive() and seen < self._shown:
            seen = self._shown
            self._thread.join(SILENCE_LIMIT_S)

    def _show_all(self) -> None:
        try:
            for line in self._job.logs(follow=True):
                _show(line)
                self._shown += 1
        except PeerloomError as error:  # the job goes on, and its output with it
            hint = f"Read it with: peerloom jobs logs {self._job.id}"
            say(f"(no more output: {escaped(error.message)} {hint})", err=True)


def _show(line: LogLine) -> None:
    if line.rank is not None:
        say(f"[{line.rank}] {escaped(line.line)}", err=line.stream == "err")
    elif not line.worker_id:  # what the trainer says of a node that it can't reach
        say(f"{escaped(line.node_name)}: {escaped(line.line)}", err=True)
