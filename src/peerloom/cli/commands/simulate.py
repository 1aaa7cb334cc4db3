"""`peerloom simulate`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from peerloom.cli.invocation import Invocation, output_option
from peerloom.cli.output import print_document, say, table_lines
from peerloom.kit.printable import Column
from peerloom.kit.quantity_texts import shown_number
from peerloom.simulator import POPULATIONS, Estimate, PolicyReport, Scenario, compare, policy_names, usual

_DAY_S = 86_400.0
_POLICIES = ("random", "thesis", "survival", "oracle")


def _figure(head: str, name: str) -> Column:
    return Column(head, lambda one: _text(one.figures[name]), right=True)


def _text(estimate: Estimate) -> str:
    if estimate.mean is None:
        return "-"
    mean = shown_number(estimate.mean)
    return mean if estimate.half_width is None else f"{mean} ±{shown_number(estimate.half_width, digits=2)}"


_COLUMNS = (
    Column("POLICY", lambda one: one.policy),
    Column("BUDGET", lambda one: str(one.budget), right=True),
    _figure("REACHED", "reached"),
    _figure("INTERRUPTIONS", "interruptions"),
    _figure("USEFUL", "useful_gflops"),
    _figure("FINISHED", "finished"),
    _figure("TIME (s)", "finish_s"),
    _figure("REGRET", "regret"),
    _figure("NEWCOMERS", "newcomer_share"),
    _figure("GINI", "unfairness"),
    _figure("ATTACKERS", "attacker_work"),
)
_LEGEND = (
    "reached: rounds that reached compute; interruptions a job; useful: GFLOP/s a requested slot;",
    "regret: the part of the oracle's useful work that was missed; newcomers: their part of the requests;",
    "attackers: their part of the work; ± 95 % confidence over seeds",
)


@click.command()
@click.option(
    "--population",
    default="volunteers-1000",
    show_default=True,
    metavar="NAME",
    help=f"Who is there: {', '.join(POPULATIONS)}.",
)
@click.option(
    "--trace",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Availability from a file instead: lines host,start_s,end_s,notice.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME",
    help=f"Repeatable; {', '.join(policy_names())}, or module:Class.  [default: {', '.join(_POLICIES)}]",
)
@click.option("--budget", "budgets", multiple=True, type=int, help="Nodes a job may ask; repeatable.")
@click.option("--rounds", type=int, help="Jobs in a simulation.")
@click.option(
    "--days", type=click.FloatRange(min=0, min_open=True), help="Jobs for so long, instead of --rounds."
)
@click.option("--interval", "interval_s", type=float, metavar="SECONDS", help="A job each so many seconds.")
@click.option(
    "--observations",
    type=float,
    default=0.0,
    metavar="COUNT",
    help="Requests to each node, by chance, before the first job that counts.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="The first seed.")
@click.option("--seeds", type=int, default=5, show_default=True, help="How many seeds.")
@click.option(
    "--processes",
    type=int,
    default=1,
    show_default=True,
    help="Seeds that are simulated at the same time; the figures stay the same.",
)
@output_option
@click.pass_obj
def simulate(
    invocation: Invocation,
    population: str,
    trace: Path | None,
    policies: tuple[str, ...],
    budgets: tuple[int, ...],
    rounds: int | None,
    days: float | None,
    interval_s: float | None,
    observations: float,
    seed: int,
    seeds: int,
    processes: int,
) -> None:
    """Compare policies in a simulated network; the same seed gives the same bytes."""
    scenario = _scenario(usual(population), rounds, days, interval_s)
    scenario = replace(scenario, observations=observations, seed=seed, trace=trace)
    tell = _tell(invocation.output)
    report = compare(scenario, policies or _POLICIES, budgets or (scenario.budget,), seeds, tell, processes)
    if invocation.output != "table":
        print_document(report, invocation.output)
        return
    say(f"{report.population}: {report.nodes:,} nodes, {report.rounds:,} rounds, {seeds} seeds\n")
    rows: list[PolicyReport] = report.reports
    for line in table_lines(rows, _COLUMNS):
        say(line)
    say("\n" + "\n".join(_LEGEND))


def _scenario(base: Scenario, rounds: int | None, days: float | None, interval_s: float | None) -> Scenario:
    if rounds is not None and days is not None:
        raise click.UsageError("--rounds and --days are two ways to say the same: give one of them.")
    scenario = base if interval_s is None else replace(base, interval_s=interval_s)
    if days is not None:
        rounds = max(1, round(days * _DAY_S / scenario.interval_s)) if scenario.interval_s > 0 else 1
    return scenario if rounds is None else replace(scenario, rounds=rounds)


def _tell(output: str) -> Callable[[str], None]:
    """Progress on standard error, for people only."""
    if output != "table":
        return lambda _: None
    return lambda line: say(line, err=True)
