"""`peerloom train`."""

from typing import Any

import click

from peerloom.cli.exits import code_of_job
from peerloom.cli.invocation import listing_options
from peerloom.cli.name_completion import POLICY
from peerloom.cli.output import print_document, say
from peerloom.cli.parameters import Pair, check_followed, choice_of, track_option
from peerloom.cli.summary import print_result
from peerloom.cli.watching import watch_job
from peerloom.client.types import Backend, RobustRule


@click.command()
@click.argument("task")
@click.argument("script_arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]...")
@click.option("--requests", type=int, help="How many nodes may be asked for compute.  [default: 3]")
@click.option("--epochs", type=int, help="Passes over the training set.  [default: the task's]")
@click.option("--batch-size", type=int, help="Samples in a step, over all workers.  [default: the task's]")
@click.option("--learning-rate", type=float, help="Step size of the optimiser.  [default: the task's]")
@click.option(
    "--policy", type=POLICY, default="", metavar="NAME", help="How to choose nodes; see 'peerloom policies'."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Same workers, same seed: same model.")
@click.option("--min-workers", type=int, help="Fewest workers to go on with.  [default: 1]")
@click.option("--max-workers", type=int, help="Most workers to use.  [default: all that the nodes give]")
@click.option(
    "--backend",
    type=choice_of(Backend),
    default="auto",
    show_default=True,
    help="Collective library; auto: NCCL where every slot is a GPU, else gloo.",
)
@click.option("--name", default="", help="A name for people.")
@click.option(
    "--min-slots", type=int, default=1, show_default=True, help="Slots a node must lend; 0: ask blindly."
)
@click.option(
    "--equal-shares", is_flag=True, help="Equal parts of a batch for all workers, however slow: repeatable."
)
@click.option(
    "--robust",
    type=choice_of(RobustRule),
    default="off",
    show_default=True,
    help="Beside workers that lie, who are found and dismissed; auto: a rule from five nodes on.",
)
@click.option(
    "--sync",
    default="",
    metavar="METHOD",
    help="How gradients become their sum; see 'peerloom sync list'. 'auto' or 'auto,quality=near' measures "
    "and chooses.  [default: wfbp-a2a]",
)
@click.option(
    "--plan",
    default="",
    metavar="PLAN",
    help="How the model spreads over workers: data, pipeline=K for consecutive layers, with widths=2/1 for "
    "several workers a stage, sharded=K for parts that all compute with, tensor=K for pieces of layers, or "
    "auto, which leaves that to the trainer.  [default: data]",
)
@click.option("--accelerator", default="", help="What each slot must be, cuda or cpu.  [default: any]")
@click.option("--label", "labels", type=Pair(), multiple=True, help="A label that each node must carry.")
@click.option(
    "--set",
    "arguments",
    type=Pair(),
    multiple=True,
    help="An argument of the task, data=/data/mnist or data=artifact:DIGEST.",
)
@click.option(
    "--initial-model", default="", help="Digest of the parameters to begin with.  [default: fresh ones]"
)
@click.option(
    "--code",
    default="",
    help="Folder or digest of the task's modules, for nodes that allow it.  [default: none]",
)
@track_option
@click.option("--detach", is_flag=True, help="Print the job's id and return.")
@listing_options
@click.pass_context
def train(ctx: click.Context, /, task: str, detach: bool, places: tuple[str, ...], **options: Any) -> None:
    """Submit a training job and watch it.

    TASK is digits, mnist, cifar10, text, emulated, module:Class importable on the nodes, or a SCRIPT.py with
    an elastic loop, which gets what comes after "--". Ctrl-C leaves the job running.
    """
    output = ctx.obj.output
    check_followed(places, detach)
    for name in ("labels", "arguments"):
        options[name] = dict(options[name])
    with ctx.obj.client() as client:
        job = client.train(task, **options)
        if detach:
            if output == "table":
                say(job.id)
            else:
                print_document(job.status(), output)
            return
        state = watch_job(job, greeting=f"{job.id} submitted", places=places)
        print_result(job.status().result, output)
    ctx.exit(code_of_job(state))
