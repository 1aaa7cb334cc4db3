"""`peerloom plan`."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peerloom.cli.exits import FAILED, NOT_FOUND, OK, WRONG_USE
from peerloom.cli.group import LazyGroup
from peerloom.cli.invocation import Invocation, output_option
from peerloom.cli.output import print_document, print_fields, say, table_lines, to_plain
from peerloom.cli.parameters import Pair
from peerloom.cli.plan_timeline import LEGEND, timeline_rows
from peerloom.cli.planning import plan_options, plan_setting_of
from peerloom.errors import UnavailableError
from peerloom.kit.plan_model.pipeline_order import PIPELINE_ORDERS
from peerloom.kit.plan_model.placed_plan import PLAN_KINDS, PlacedPlan
from peerloom.kit.plan_model.plan_reasons import (
    report_of,
    why_chosen,
    why_it_loses,
    why_memory_binds,
    why_too_large,
)
from peerloom.kit.plan_model.plan_search import PlanChoice, choose_plan
from peerloom.kit.plan_model.shadow_room import shadow_needs
from peerloom.kit.printable import Column
from peerloom.kit.quantity_texts import plural, shown_bytes, shown_number, shown_s

if TYPE_CHECKING:
    from peerloom.kit.plan_model.plan_setting import PlanSetting

_ANY = "any"
_WIDEST = 120
_STAGE_COLUMNS = (
    Column("STAGE", lambda row: str(row[0]), right=True),
    Column("LAYERS", lambda row: _span(row[1].first, row[1].last)),
    Column("SLOTS", lambda row: ",".join(row[1].slots)),
    Column("SAMPLES", lambda row: ",".join(map(str, row[1].shares))),
    Column("FORWARD", lambda row: shown_s(row[1].forward_s), right=True),
    Column("BACKWARD", lambda row: shown_s(row[1].backward_s), right=True),
    Column("SENDS", lambda row: shown_s(row[1].sends_s), right=True),
    Column("SUM", lambda row: shown_s(row[1].sum_s), right=True),
    Column("IDLE", lambda row: f"{row[1].idle_ratio:.0%}", right=True),
    Column("MEMORY", lambda row: f"{shown_bytes(row[1].needed_bytes)} of {shown_bytes(row[1].memory_bytes)}"),
)


@click.group(
    cls=LazyGroup,
    table={
        "explain": ("peerloom.cli.commands.plan:explain_plan", "The plan for a model, slots and links."),
        "layers": ("peerloom.cli.commands.plan:show_layers", "What a task's layers cost, for 'explain'."),
    },
)
def plan() -> None:
    """How a model that is larger than a slot would be cut into stages, and who would have which."""


@click.command("explain")
@plan_options
@click.option(
    "--order",
    type=click.Choice([*PIPELINE_ORDERS, _ANY]),
    default=_ANY,
    show_default=True,
    help="In which a stage makes its passes.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Draw the step too: FILE.png or FILE.svg.",
)
@output_option
@click.pass_obj
def explain_plan(invocation: Invocation, /, order: str, out: Path | None, **chosen: Any) -> None:
    """The plan that would finish most samples a second, why, and the next best. Nothing is run.

    Layers become stages, a stage has one slot or several, and a batch goes through in micro-batches.

    \b
      peerloom plan explain --model transformer:12:512:256 --slots 4 --memory 1GB \\
        --rate 50Mbps --delay 5ms --batch 32 --operations 1000G
    """
    from peerloom.experiments.pictures.canvas import canvas, check_ending, save

    if out is not None:
        check_ending(out)
        canvas()  # without matplotlib nothing else need be reckoned
    setting = plan_setting_of(chosen)
    found = choose_plan(setting, tuple(PIPELINE_ORDERS) if order == _ANY else (order,))
    if invocation.output != "table":
        print_document(_document(found, setting), invocation.output)
    else:
        _print_choice(found, setting)
    if out is not None:
        from peerloom.experiments.pictures.pipeline import draw_pipeline

        say(save(draw_pipeline(found.chosen), out), err=True)


@click.command("layers")
@click.argument("task", metavar="TASK")
@click.option("--set", "arguments", type=Pair(), multiple=True, help="An argument of the task, NAME=VALUE.")
@click.pass_context
def show_layers(ctx: click.Context, /, task: str, arguments: tuple[tuple[str, str], ...]) -> None:
    """What the layers of TASK cost, as JSON, numbered as its pipelines are cut. Its code is run here.

    \b
      peerloom plan layers digits > layers.json
      peerloom plan explain --layers layers.json --slots 2 --memory 1GB --batch 32
    """
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise UnavailableError("torch isn't installed here: pip install 'peerloom[train]'")
    pairs = [f"{name}={value}" for name, value in arguments]
    module = [sys.executable, "-m", "peerloom.worker.plan.task_layers"]
    done = subprocess.run([*module, task, *pairs], stdout=subprocess.PIPE, check=False)
    if done.stdout:
        say(done.stdout.decode().rstrip())
    ctx.exit(done.returncode if done.returncode in (OK, WRONG_USE, NOT_FOUND) else FAILED)


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _document(found: PlanChoice, setting: "PlanSetting") -> dict[str, Any]:
    best = found.chosen
    shadows = shadow_needs(best, setting).reason if best.plan.is_divided else ""
    return {
        "reason": why_chosen(found, setting),
        "shadows": shadows,
        "more_memory": why_memory_binds(found, setting),
        "is_best_of_all": found.is_best_of_all,
        "evaluated": found.evaluated,
        "simulated": found.simulated,
        "plan": {**to_plain(report_of(best, setting)), "timeline": _timeline(found)},
        "others": [
            {**to_plain(report_of(one, setting)), "why_not": why_it_loses(one, best, setting)}
            for one in found.others
        ],
        "too_large": [
            {"kind": one.plan.kind, "why_not": why_too_large(one, setting)} for one in found.too_large
        ],
    }


def _timeline(found: PlanChoice) -> list[dict[str, Any]]:
    return [one._asdict() for one in found.chosen.simulated.passes]


def _print_choice(found: PlanChoice, setting: "PlanSetting") -> None:
    best, report = found.chosen, report_of(found.chosen, setting)
    shadows = shadow_needs(best, setting) if best.plan.is_divided else None
    print_fields(
        [
            ("plan", f"{report.kind}: {PLAN_KINDS[report.kind]}"),
            ("why", why_chosen(found, setting)),
            ("binds", report.binds),
            ("memory", why_memory_binds(found, setting)),
            ("micro-batches", _micro_batches(found, setting)),
            ("order", f"{report.order}: {PIPELINE_ORDERS[report.order]}" if _has_order(best.plan) else ""),
            ("shadows", shadows.reason if shadows else ""),
            ("as a job's", _as_job(best.plan, shadows.is_worth) if shadows else ""),
        ]
    )
    say()
    for line in table_lines(list(enumerate(report.stages)), _STAGE_COLUMNS):
        say(line)
    say()
    for line in timeline_rows(best.simulated, min(_WIDEST, shutil.get_terminal_size().columns)):
        say(line)
    say(f"{shown_s(best.step_s)} from left to right. {LEGEND}\n")
    _print_others(found, setting)
    say("\nPredicted, not measured. Plans that cut within a layer, as jobs' tensor=K, aren't searched.")


def _as_job(plan: PlacedPlan, shadow: bool) -> str:
    return f"--plan {plan.as_job([stage.first for stage in plan.stages[1:]], shadow=shadow)}"


def _has_order(plan: PlacedPlan) -> bool:
    return plan.is_divided and not plan.is_sharded


def _micro_batches(found: PlanChoice, setting: "PlanSetting") -> str:
    plan = found.chosen.plan
    if plan.is_sharded:
        return f"{plan.micro_batches}, one of each slot's"
    return f"{plan.micro_batches} of {plural(setting.batch // plan.micro_batches, 'sample')}"


def _print_others(found: PlanChoice, setting: "PlanSetting") -> None:
    """A line for each, and why it isn't taken below it."""
    for one in found.others:
        stages, slots = len(one.plan.stages), len(one.plan.slots)
        order = f", {one.plan.order}" if _has_order(one.plan) else ""
        word = "shard" if one.plan.is_sharded else "stage"
        say(
            f"{one.plan.kind}, {plural(stages, word)} on {plural(slots, 'slot')}{order}: "
            f"{shown_number(one.finished_per_s)} samples/s in steps of {shown_s(one.step_s)}"
        )
        say(f"  {why_it_loses(one, found.chosen, setting)}")
    for costed in found.too_large:
        say(f"{costed.plan.kind}:\n  {why_too_large(costed, setting)}")
