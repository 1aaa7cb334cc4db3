"""`peerloom experiment`."""

import dataclasses
from pathlib import Path
from typing import Any

import click

from peerloom.cli.output import say
from peerloom.cli.parameters import NameList, SlotList
from peerloom.cli.stopping import stop_signals

_WORKLOADS = ("mnist", "cifar10")
_FOLDER = click.Path(path_type=Path)


@click.command()
@click.argument("name", required=False, default="")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("experiments"),
    show_default=True,
    metavar="DIR",
    help="Folder for NAME.json and NAME.png.",
)
@click.option(
    "--mnist", type=_FOLDER, metavar="DIR", help="Folder of MNIST's IDX files.  [default: generated]"
)
@click.option(
    "--cifar10", type=_FOLDER, metavar="DIR", help="Folder of CIFAR-10's binary files.  [default: generated]"
)
@click.option(
    "--workload", "workloads", multiple=True, metavar="mnist|cifar10", help="Only this one; repeatable."
)
@click.option(
    "--scale", default=0.05, show_default=True, help="Generated samples, as a part of the official number."
)
@click.option(
    "--rounds",
    type=int,
    help="Rounds; of byzantine, seeds; of network-scaling, runs of a cell.  [default: the experiment's]",
)
@click.option("--budgets", type=SlotList(), default="2,3,4,6,8", show_default=True, help="For selection.")
@click.option("--systems", default=1, show_default=True, help="For selection: fresh systems a budget.")
@click.option(
    "--repeats",
    default=1000,
    show_default=True,
    help="For selection on the thesis's nodes: repeats in the simulator, for error bars.",
)
@click.option("--workers", default=8, show_default=True, help="For scalings: up to so many workers.")
@click.option(
    "--over",
    default="",
    metavar="HOST:PORT",
    help="For scaling: a running system's registry, whose network to measure.  [default: loopback]",
)
@click.option(
    "--networks",
    type=NameList(),
    default="csma-200M,csma-100M,wan-100M-1ms",
    show_default=True,
    help="For network-...: LANs by their rate, links of each node by rate and delay; one for -heterogeneous.",
)
@click.option(
    "--slowdown",
    default=10.0,
    show_default=True,
    help="For network-...: how many times slower than the thesis's devices are.",
)
@click.option(
    "--nodes",
    "slots",
    type=SlotList(),
    metavar="SLOTS,...",
    help="One node for each number.  [default: the thesis's 20]",
)
@click.option("--policy", default="", help="Whom to ask.  [default: thesis; random for heterogeneous]")
@click.option("--seed", default=0, show_default=True, help="Of generated data and of the selector's chance.")
@click.pass_context
def experiment(
    ctx: click.Context,
    /,
    name: str,
    out: Path,
    mnist: Path | None,
    cifar10: Path | None,
    slots: tuple[int, ...] | None,
    **chosen: Any,
) -> None:
    """Run one of the thesis's experiments, or another, on a system of its own, and draw its figure.

    \b
    scaling        time against 1 to 8 workers, over nodes and in one machine (Figures 4, 5)
    selection      whom 50 rounds of asking reach, for each budget (Figure 6)
    heterogeneous  training on whatever a budget of 3 reaches (Figures 7, 8)
    versus-single  the system beside one node alone
    byzantine      training beside workers that lie, by each rule of --robust
    network-scaling        the same as scaling behind ns-3, compute emulated; as root
    network-heterogeneous  the same as heterogeneous behind ns-3, compute emulated; as root
    survey         seven methods to synchronise, predicted, beside a survey's figures; starts nothing

    Data are your own files, or generated ones of the same shapes, for timing only; the result says which.
    """
    if not name:
        say(ctx.get_help())
        return
    from peerloom.experiments import catalogue, records
    from peerloom.experiments.pictures.canvas import canvas, save
    from peerloom.experiments.settings import Settings

    found = catalogue.find(name)
    data = {key: path for key, path in (("mnist", mnist), ("cifar10", cifar10)) if path is not None}
    chosen["workloads"] = chosen["workloads"] or _WORKLOADS
    if slots is not None:
        chosen["slots"] = slots
    settings = Settings(data=data, **chosen)
    canvas()  # before the work of minutes, that no picture could be drawn from
    with stop_signals():
        result = found.run(settings, lambda line: say(line, err=True))
    asked = {**dataclasses.asdict(settings), "data": {key: path.name for key, path in data.items()}}
    kept = records.record(name, found.figures, asked, result)
    records.write(kept, out / f"{name}.json")
    say(out / f"{name}.json")
    say(save(found.draw(kept), out / f"{name}.png"))
