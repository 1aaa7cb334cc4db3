"""`peerloom beliefs`."""

import click

from peerloom import Belief, BeliefTerms
from peerloom.cli.belief_columns import TERM_COLUMNS
from peerloom.cli.explain import explain, where_figures_come_from
from peerloom.cli.group import LazyGroup
from peerloom.cli.invocation import Invocation, listing_options
from peerloom.cli.name_completion import NODE, POLICY
from peerloom.cli.output import print_document, print_fields, print_list, say, table_lines
from peerloom.cli.units import human_age
from peerloom.kit.printable import Column
from peerloom.kit.quantity_texts import plural, shown_number

_HERE = "peerloom.cli.commands.beliefs"


_BELIEF = Column("BELIEF", lambda b: f"{b.belief:.4f}", right=True)
_LIST_COLUMNS = (Column("NODE", lambda b: b.name), _BELIEF, *TERM_COLUMNS)
_HISTORY_COLUMNS = (
    Column("UPDATE", lambda b: str(b.updates), right=True),
    Column("WHEN", lambda b: human_age(b.update_time)),
    _BELIEF,
    *TERM_COLUMNS,
    Column("BECAUSE", lambda b: cause_of(b)),
)


def cause_of(belief: Belief) -> str:
    """The evidence behind the last update."""
    evidence = belief.evidence
    if evidence is None:
        return "-"
    kind = evidence.kind.replace("_", " ")
    return f"{kind}: {evidence.detail}" if evidence.detail else kind


@click.group(
    cls=LazyGroup,
    table={
        "list": (f"{_HERE}:list_beliefs", "The belief in each node, highest first."),
        "show": (f"{_HERE}:show_belief", "One node's belief, computed before your eyes."),
        "explain": (f"{_HERE}:explain_belief", "A policy's score of a node, and why it was chosen or not."),
        "history": (f"{_HERE}:show_history", "Each update of a node's belief, newest first."),
    },
)
def beliefs() -> None:
    """Whom the selector trusts, and why."""


@click.command("list")
@listing_options
@click.pass_obj
def list_beliefs(invocation: Invocation) -> None:
    """The belief in each node with its main terms, highest first."""
    with invocation.client() as client:
        found = client.beliefs()
    print_list(found, _LIST_COLUMNS, invocation.output, "the selector knows no nodes yet")


@click.command("show")
@click.argument("node", type=NODE)
@listing_options
@click.pass_obj
def show_belief(invocation: Invocation, node: str) -> None:
    """One node's belief: each formula with its names, its figures and its result."""
    with invocation.client() as client:
        belief = client.belief(node)
    if invocation.output != "table":
        print_document(belief, invocation.output)
        return
    say(f"{click.style(belief.name, bold=True)}  belief {click.style(f'{belief.belief:.4f}', bold=True)}")
    if belief.terms is None:
        say("No evidence yet: a belief begins at 0.")
        return
    say(f"after {plural(belief.updates, 'update')}, the last {human_age(belief.update_time)}")
    say(f"because of {cause_of(belief)}\n")
    _take_apart(belief.terms, belief.belief)


def _take_apart(terms: BeliefTerms, belief: float) -> None:
    for line in explain(terms, belief):
        say(line)
    print_fields(where_figures_come_from(terms))


_SCORE_COLUMNS = (
    Column("TERM", lambda term: term.name),
    Column("VALUE", lambda term: shown_number(term.value, digits=6), right=True),
    Column("UNIT", lambda term: term.unit),
    Column("BECAUSE", lambda term: term.evidence),
)


@click.command("explain")
@click.argument("node", type=NODE)
@click.option(
    "--policy", type=POLICY, default="", metavar="NAME", help="Whose score.  [default: the system's policy]"
)
@listing_options
@click.pass_obj
def explain_belief(invocation: Invocation, node: str, policy: str) -> None:
    """What a policy makes of a node: each term, the evidence behind it, and the last choices."""
    with invocation.client() as client:
        found = client.explain_belief(node, policy)
    if invocation.output != "table":
        print_document(found, invocation.output)
        return
    belief = found.belief
    say(f"{click.style(belief.name or belief.node_id, bold=True)}  by the policy {found.policy}\n")
    for line in table_lines(found.score_terms, _SCORE_COLUMNS):
        say(line)
    say("")
    if found.policy == "thesis" and belief.terms is not None:  # whose score is the belief itself
        _take_apart(belief.terms, belief.belief)
        say("")
    for choice in found.choices:
        word = "chosen" if choice.chosen else "not chosen"
        say(f"{word} {human_age(choice.time)} by {choice.policy}: {choice.reason}")
    if not found.choices:
        say("nobody has asked since the selector started")
    say(f"belief {belief.belief:.4f} after {plural(belief.updates, 'update')}")
    if belief.evidence is not None:
        say(f"the last because of {cause_of(belief)}")


@click.command("history")
@click.argument("node", type=NODE)
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many updates."
)
@listing_options
@click.pass_obj
def show_history(invocation: Invocation, node: str, limit: int) -> None:
    """Each update of a node's belief with its terms and the evidence behind it, newest first."""
    with invocation.client() as client:
        updates = client.belief_history(node, limit=limit)
    print_list(updates, _HISTORY_COLUMNS, invocation.output, f"no evidence about {node} yet")
