"""`peerloom plot`."""

from pathlib import Path

import click

from peerloom.cli.invocation import Invocation, system_options
from peerloom.cli.output import say
from peerloom.errors import InvalidArgumentError


@click.command()
@click.argument("kind", required=False, default="")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="FILE.png or FILE.svg.  [default: KIND.png]",
)
@click.option(
    "--from", "source", type=click.Path(path_type=Path), metavar="FILE.json", help="A result to draw from."
)
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="Only this node; repeatable.")
@system_options
@click.pass_context
def plot(
    ctx: click.Context, kind: str, out: Path | None, source: Path | None, nodes: tuple[str, ...]
) -> None:
    """Draw what a system remembers, or a result, as PNG or SVG.

    \b
    From the system that is up:
      beliefs     belief over time of chosen nodes, the evidence marked
      selections  how often each node was asked, and how often it gave
      survival    how long nodes stay: survival curves of their sessions
    From a file (--from):
      hit-rate    hit rate against budget, of 'experiment selection' or 'simulate -o json'
      regret      regret over rounds for each policy, of 'simulate -o json'
      hits        how often each node gave compute, of 'simulate -o json'
      result      any experiment's result, drawn again
    """
    if not kind:
        say(ctx.get_help())
        return
    from peerloom.experiments import plots, records
    from peerloom.experiments.pictures.canvas import canvas, check_ending, save

    found, path = plots.find(kind), out or Path(f"{kind}.png")
    check_ending(path)
    canvas()  # without matplotlib nothing else need be asked
    if found.of_result is not None:
        if source is None:
            raise InvalidArgumentError(f"'plot {kind}' draws a result: name its file with --from FILE.json.")
        figure = found.of_result(records.read(source))
    else:
        assert found.of_system is not None, "a plot is of a result or of a system"
        if source is not None:
            raise InvalidArgumentError(f"'plot {kind}' draws the system that is up: leave --from out.")
        with ctx.ensure_object(Invocation).client() as client:
            figure = found.of_system(client, nodes)
    say(save(figure, path))
