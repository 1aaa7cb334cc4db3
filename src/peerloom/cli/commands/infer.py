"""`peerloom infer`."""

from pathlib import Path
from typing import Any, get_args

import click
import numpy as np

from peerloom.cli.invocation import Invocation, listing_options
from peerloom.cli.name_completion import MODEL
from peerloom.cli.output import print_document, print_fields, say, table_lines
from peerloom.client.types.inference import Inference, Mode, OpinionMode
from peerloom.kit.printable import Column

_SHOWN = 20
_COLUMNS = (
    Column("INPUT", lambda row: str(row[0]), right=True),
    Column("CLASS", lambda row: row[1], right=True),
    Column("PROBABILITY", lambda row: row[2], right=True),
    Column("OUTPUTS", lambda row: row[3]),
)


@click.command("infer")
@click.argument("model", type=MODEL)
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--mode", type=click.Choice(get_args(Mode)), default="auto", help="Which way; auto measures.")
@click.option("--nodes", type=int, default=1, metavar="N", help="So many nodes answer; combined.")
@click.option("--aggregate", type=click.Choice(["mean", "vote"]), default="mean", help="How to combine.")
@click.option("--stages", type=int, default=0, metavar="N", help="Stages of a split model; 0: as is fastest.")
@click.option(
    "--second-opinion",
    type=click.Choice(get_args(OpinionMode)),
    default="auto",
    help="Ask another owner's node the same now and then: after the answer is given, or before; auto: in the "
    "background where a door tells owners apart.",
)
@click.option(
    "--timeout", "timeout_s", type=float, default=60.0, metavar="S", help="Seconds to wait at most."
)
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Write all outputs as .npy.")
@listing_options
@click.pass_obj
def infer(
    invocation: Invocation, /, model: str, files: tuple[Path, ...], save: Path | None, **settings: Any
) -> None:
    """Ask MODEL (a name, a digest, its beginning, or a job) about the inputs in FILES.

    These are .npy arrays [n, ...], .json with nested lists of numbers, .csv with an input's numbers in each
    row, .png with a picture each (needs Pillow: pip install 'peerloom[images]'), or .txt with a text each.
    What they have to be `peerloom models show MODEL` says. Prints the answers, which way was taken, and why.
    """
    with invocation.client() as client:
        answer = client.infer(model, list(files), **settings)
    if save is not None:
        np.save(save, answer.outputs)
        say(f"wrote {answer.outputs.shape} to {save}", err=True)
    if invocation.output != "table":
        print_document(as_plain(answer), invocation.output)
        return
    for line in table_lines(
        [_row(answer, number) for number in range(len(answer.outputs))[:_SHOWN]], _COLUMNS
    ):
        say(line)
    if len(answer.outputs) > _SHOWN:
        say(f"... and {len(answer.outputs) - _SHOWN:,} more; all of them: --save FILE.npy or -o json")
    say()
    print_fields(_facts(answer))


def as_plain(answer: Inference) -> dict[str, Any]:
    """The answer with its outputs and probabilities as lists."""
    plain = {name: getattr(answer, name) for name in answer.__dataclass_fields__}
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in plain.items()}


def _row(answer: Inference, number: int) -> tuple[int, str, str, str]:
    outputs = answer.outputs[number]
    flat = outputs.reshape(-1)
    best = str(int(flat.argmax())) if outputs.ndim == 1 and len(flat) > 1 else "-"
    probability = "-" if answer.probabilities is None else f"{answer.probabilities[number].max():.4f}"
    shown = "  ".join(f"{value:.4g}" for value in flat[:10])
    label = answer.labels[number] if answer.labels else best
    return number, label, probability, shown + ("  ..." if len(flat) > 10 else "")


def _facts(answer: Inference) -> list[tuple[str, str]]:
    facts = [("way", f"{answer.mode}: {answer.reason}")]
    if answer.nodes:
        facts.append(("nodes", ", ".join(answer.nodes)))
    facts.append(("took", f"{answer.seconds:.3f} s, of which the model {answer.model_s:.3f} s"))
    if answer.disagreement is not None:
        apart = f"; apart from the others: {', '.join(answer.deviating)}" if answer.deviating else ""
        facts.append(("disagreement", f"{answer.disagreement:.4f}{apart}"))
    if answer.disagreement is None and answer.deviating:
        facts.append(("answered otherwise", ", ".join(answer.deviating)))
    if answer.confirmed_by:
        facts.append(("confirmed by", ", ".join(answer.confirmed_by)))
    if answer.hedged:
        facts.append(("hedged", "the first node was late, a second one answered"))
    if answer.replaced:
        facts.append(("replaced", f"{answer.replaced} stages were lost on the way and replaced"))
    return facts
