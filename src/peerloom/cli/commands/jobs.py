"""`peerloom jobs`."""

import re
import shlex
from datetime import datetime

import click

from peerloom import Job, Worker
from peerloom.cli.exits import code_of_job
from peerloom.cli.group import LazyGroup
from peerloom.cli.invocation import Invocation, listing_options, system_options
from peerloom.cli.job_fields import audits_of, began_anew_of, failed_last_of, network_of, passed_over_of
from peerloom.cli.name_completion import JOB
from peerloom.cli.output import print_document, print_fields, print_list, say, table_lines
from peerloom.cli.parameters import choice_of, track_option
from peerloom.cli.plan_fields import PREDICTED_COLUMNS, is_divided, plan_fields
from peerloom.cli.stage_columns import stage_columns
from peerloom.cli.summary import print_result
from peerloom.cli.sync_fields import sync_fields
from peerloom.cli.units import human_age, human_duration, metric_of
from peerloom.cli.watching import watch_job
from peerloom.client.types import JobState
from peerloom.kit.printable import Column, escaped
from peerloom.kit.quantity_texts import plural

_HERE = "peerloom.cli.commands.jobs"


def steps_of(job: Job) -> str:
    """E.g. "120/450"."""
    progress = job.progress
    return f"{progress.step}/{progress.total_steps or '?'}" if progress else "-"


def _rounds_of(job: Job) -> str:
    found = re.search(r"\bperiod=(\d+)", job.spec.sync)
    return f", {int(found[1]):,} a round" if found and found[1] != "1" else ""


def test_of(job: Job) -> str:
    """The metric on the test set."""
    return metric_of(job.progress.metric_name, job.progress.metric) if job.progress else "-"


def logged_of(job: Job) -> str:
    """What a script logged last."""
    logged = job.progress.metrics if job.progress else {}
    return ", ".join(f"{name} {value:.4g}" for name, value in sorted(logged.items()))


def working_on(job: Job) -> str:
    """How many workers it has now."""
    return "-" if job.ended else str(len([worker for worker in job.workers if not worker.ended]))


COLUMNS = (
    Column("JOB", lambda job: job.id),
    Column("NAME", lambda job: job.spec.name or "-"),
    Column("TASK", lambda job: job.spec.task),
    Column("STATE", lambda job: job.state.replace("_", " ")),
    Column("STEPS", steps_of, right=True),
    Column("TEST", test_of),
    Column("WORKERS", lambda job: working_on(job), right=True),
    Column("SUBMITTED", lambda job: human_age(job.submit_time)),
)
_ANSWER_COLUMNS = (
    Column("ASKED", lambda answer: answer.name),
    Column("BELIEF", lambda answer: f"{answer.belief:.4f}", right=True),
    Column("GAVE", lambda answer: f"{answer.accepted_slots}/{answer.slots}", right=True),
    Column("CHOSEN BECAUSE", lambda answer: answer.chosen_because),
    Column("ITS ANSWER", lambda answer: answer.reason),
)


@click.group(
    cls=LazyGroup,
    table={
        "list": (f"{_HERE}:list_jobs", "All jobs, newest first."),
        "show": (f"{_HERE}:show_job", "One job: who was asked, who works, what came out."),
        "watch": (f"{_HERE}:watch", "Follow a job until it ends."),
        "logs": (f"{_HERE}:logs", "What a job's workers printed."),
        "cancel": (f"{_HERE}:cancel", "End a job."),
        "resume": (f"{_HERE}:resume", "Go on with an ended job from its checkpoint."),
    },
)
def jobs() -> None:
    """Training jobs. JOB is an id or the beginning of one."""


@click.command("list")
@click.option("--state", "states", type=choice_of(JobState), multiple=True, help="Only jobs in this state.")
@listing_options
@click.pass_obj
def list_jobs(invocation: Invocation, states: tuple[str, ...]) -> None:
    """All jobs, newest first."""
    with invocation.client() as client:
        found = client.jobs(states=states)
    hint = "no jobs like that" if states else "no jobs yet; submit one with: peerloom train digits"
    print_list(found, COLUMNS, invocation.output, hint)


@click.command("show")
@click.argument("job", type=JOB)
@listing_options
@click.pass_obj
def show_job(invocation: Invocation, job: str) -> None:
    """One job: who was asked, who works, what came out."""
    with invocation.client() as client:
        found = client.job(job).status()
    if invocation.output != "table":
        print_document(found, invocation.output)
        return
    _print_job(found)
    predicted = found.plan.predicted.stages if found.plan and found.plan.predicted else ()
    tables = (
        (found.answers, _ANSWER_COLUMNS),
        (found.workers, _worker_columns(found)),
        (predicted, PREDICTED_COLUMNS),
    )
    for rows, columns in tables:
        if rows:
            say()
            for line in table_lines(rows, columns):
                say(line)
    if found.result and found.result.succeeded:
        say()
        print_result(found.result)


def _worker_columns(job: Job) -> tuple[Column, ...]:
    def state(worker: Worker) -> str:
        if worker.ended:
            return worker.end_reason or "ended"
        if job.ended:
            return "ended with the job"
        if worker.generation and worker.generation == job.generation:
            return "working"
        return "spare, or not yet ready" if job.generation else "starting"

    def rank(worker: Worker) -> str:
        return str(worker.rank) if worker.generation else ""

    return (
        Column("RANK", rank, right=True),
        Column("WORKER", lambda worker: worker.id),
        Column("NODE", lambda worker: worker.node_name),
        *stage_columns(job),
        Column("STATE", state),
    )


def _print_job(job: Job) -> None:
    spec, first, end = job.spec, job.first_step_time, job.end_time
    state = job.state.replace("_", " ")
    print_fields(
        [
            ("job", job.id),
            ("name", spec.name),
            ("task", " ".join([spec.task, *(f"{key}={value}" for key, value in spec.arguments.items())])),
            ("arguments", shlex.join(spec.script_arguments)),
            ("state", f"{state}: {job.reason}" if job.reason else state),
            ("asked for", f"{plural(spec.requests, 'request')}" if spec.requests else ""),
            ("epochs", str(spec.epochs or "")),
            ("batch size", str(spec.batch_size or "")),
            ("learning rate", f"{spec.learning_rate:g}" if spec.learning_rate else ""),
            ("policy", spec.policy),
            ("named", str(job.choice) if job.choice else ""),
            ("passed over", passed_over_of(job)),
            ("seed", str(spec.seed)),
            ("steps", steps_of(job) + _rounds_of(job)),
            ("logged", logged_of(job)),
            ("test", test_of(job)),
            ("backend", str(job.backend or "")),
            ("plan", spec.plan),
            *plan_fields(job),
            *([] if is_divided(job) else [("sync", spec.sync), *sync_fields(job)]),
            ("generation", str(job.generation or "")),
            ("began anew", began_anew_of(job)),
            ("ledger", job.ledger.verdict if job.ledger else ""),
            ("clients", "; ".join(map(str, job.ledger.clients)) if job.ledger else ""),
            ("audits", audits_of(job)),
            ("failed last", failed_last_of(job)),
            ("files", f"peerloom artifacts get {job.files[:12]} FILE.tar" if job.files else ""),
            ("evaluation", str(job.evaluation) if job.evaluation else ""),
            ("network", network_of(job)),
            ("trace", job.trace_id),
            ("submitted", human_age(job.submit_time)),
            ("first step", _after(job.submit_time, first)),
            ("ended", _after(job.submit_time, end)),
        ]
    )


def _after(start: datetime | None, then: datetime | None) -> str:
    if start is None or then is None:
        return ""
    return f"{human_duration((then - start).total_seconds())} after it was submitted"


@click.command()
@click.argument("job", type=JOB)
@click.option(
    "--after", type=click.IntRange(0), default=0, help="Begin after the event of this sequence number."
)
@track_option
@listing_options
@click.pass_context
def watch(ctx: click.Context, job: str, after: int, places: tuple[str, ...]) -> None:
    """Follow a job until it ends. With '-o json' each event is one JSON object on a line.

    A tracker is told of what it doesn't know yet, from the job's beginning on.

    Ctrl-C leaves the job running.
    """
    with ctx.obj.client() as client:
        handle = client.job(job)
        state = watch_job(handle, ctx.obj.output, after=after, places=places)
        if ctx.obj.output != "json":
            print_result(handle.status().result, ctx.obj.output)
    ctx.exit(code_of_job(state))


@click.command()
@click.argument("job", type=JOB)
@click.option("-f", "--follow", is_flag=True, help="Go on as more is printed, until the job ends.")
@click.option("--tail", type=click.IntRange(1), help="At most so many last lines of each worker.")
@system_options
@click.pass_obj
def logs(invocation: Invocation, job: str, follow: bool, tail: int | None) -> None:
    """What a job's workers printed, each line after the node and the worker."""
    with invocation.client() as client:
        for line in client.job(job).logs(follow=follow, tail=tail or 0):
            rank = "" if line.rank is None else f" [{line.rank}]"
            who = escaped(f"{line.node_name} {line.worker_id}{rank}")
            say(f"{click.style(who, dim=True)}  {escaped(line.line)}")


@click.command()
@click.argument("job", type=JOB)
@listing_options
@click.pass_obj
def cancel(invocation: Invocation, job: str) -> None:
    """End a job; one that has ended stays as it is."""
    with invocation.client() as client:
        ended = client.job(job).cancel()
    print_list([ended], COLUMNS, invocation.output, "")


@click.command()
@click.argument("job", type=JOB)
@click.option(
    "--plan", default="", metavar="PLAN", help="Another plan, as 'train' takes it.  [default: its own]"
)
@listing_options
@click.pass_obj
def resume(invocation: Invocation, job: str, plan: str) -> None:
    """Go on with a job that ended without a model, from its newest checkpoint."""
    with invocation.client() as client:
        resumed = client.job(job).resume(plan=plan)
    print_list([resumed], COLUMNS, invocation.output, "")
