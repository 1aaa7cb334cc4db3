"""`peerloom models`."""

from pathlib import Path
from typing import get_args

import click

from peerloom import RawInput, ScaleShift, Standardise, Vocabulary
from peerloom.cli.group import LazyGroup
from peerloom.cli.invocation import Invocation, listing_options, system_options
from peerloom.cli.name_completion import MODEL
from peerloom.cli.output import print_document, print_fields, print_list, say
from peerloom.cli.parameters import Size
from peerloom.cli.units import human_age, metric_of
from peerloom.client.types.artifacts import ModelFormat
from peerloom.kit.printable import Column
from peerloom.kit.quantity_texts import shown_bytes

_HERE = "peerloom.cli.commands.models"


_COLUMNS = (
    Column("MODEL", lambda model: model.reference),
    Column("DIGEST", lambda model: model.digest[:12]),
    Column("TASK", lambda model: model.task),
    Column("TEST", lambda model: metric_of(model.metric_name, model.metric)),
    Column("SIZE", lambda model: shown_bytes(model.size_bytes), right=True),
    Column("JOB", lambda model: model.job_id),
    Column("MADE", lambda model: human_age(model.create_time)),
)


@click.group(
    cls=LazyGroup,
    table={
        "list": (f"{_HERE}:list_models", "All models, newest first."),
        "show": (f"{_HERE}:show_model", "A model with its lineage, and who holds it."),
        "get": (f"{_HERE}:get_model", "Fetch a model, for transformers, peft or torch too."),
    },
)
def models() -> None:
    """What finished jobs left."""


@click.command("list")
@listing_options
@click.pass_obj
def list_models(invocation: Invocation) -> None:
    """All models, newest first."""
    with invocation.client() as client:
        found = client.models()
    print_list(found, _COLUMNS, invocation.output, "no models yet; make one with: peerloom train digits")


@click.command("show")
@click.argument("model", type=MODEL)
@listing_options
@click.pass_obj
def show_model(invocation: Invocation, model: str) -> None:
    """MODEL (NAME, NAME:latest, NAME:VERSION, a digest, its beginning, or a job) with its lineage."""
    with invocation.client() as client:
        found = client.model(model)
        holders = client.artifacts.where(found.digest)
    if invocation.output != "table":
        print_document({"model": found, "holders": holders}, invocation.output)
        return
    print_fields(
        [
            ("model", found.reference),
            ("digest", found.digest),
            ("size", shown_bytes(found.size_bytes)),
            ("task", found.task),
            ("test", metric_of(found.metric_name, found.metric)),
            ("job", found.job_id),
            ("made", human_age(found.create_time)),
            ("began with", found.initial_model),
            *_inputs(found.raw_input),
            ("held by", ", ".join(holder.name for holder in holders) or "nobody that can be reached"),
        ]
    )


def _inputs(raw: RawInput | None) -> list[tuple[str, str]]:
    """What the model takes and tells, in words."""
    if raw is None:
        return [("takes", "tensors; its task declared no raw inputs")]
    if raw.vocabulary:
        return [("takes", f"text of 1 to {raw.shape[0]} tokens"), ("tokens", _vocabulary(raw.vocabulary))]
    return [
        ("takes", f"{raw.dtype}{[*raw.shape]} for each input, values from {raw.low:g} to {raw.high:g}"),
        ("prepared by", _transform(raw.transform)),
        ("labels", ", ".join(raw.labels) or "none: its outputs are no classes"),
    ]


def _transform(transform: Standardise | ScaleShift | Vocabulary | None) -> str:
    match transform:
        case Standardise(mean, deviation, divisor):
            return f"(value / {divisor:g} - {_numbers(mean)}) / {_numbers(deviation)}"
        case ScaleShift(scale, shift):
            return f"{_numbers(scale)} * value + {_numbers(shift)}"
    return "nothing: values stay as they are"


def _vocabulary(vocabulary: Vocabulary) -> str:
    characters = vocabulary.characters
    return f"{len(characters)} characters: {characters!r}" if characters else "its bytes in UTF-8"


def _numbers(numbers: tuple[float, ...]) -> str:
    shown = ", ".join(f"{number:.6g}" for number in numbers[:4])
    if len(numbers) == 1:
        return shown if numbers[0] >= 0 else f"({shown})"
    return f"[{shown}, ... {len(numbers) - 4:,} more]" if len(numbers) > 4 else f"[{shown}]"


@click.command("get")
@click.argument("model", type=MODEL)
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option(
    "--format",
    type=click.Choice(get_args(ModelFormat)),
    default="safetensors",
    show_default=True,
    help="A file, or a new folder for from_pretrained (transformers, peft) or torch.distributed.checkpoint.",
)
@click.option(
    "--shard-size",
    type=Size(),
    default="5GB",
    show_default=True,
    help="The most that a file of the format hugging-face has.",
)
@click.option(
    "--checkpoint",
    is_flag=True,
    help="The newest checkpoint of the job MODEL, which runs or ended without a model: optimiser and all.",
)
@system_options
@click.pass_obj
def get_model(
    invocation: Invocation,
    model: str,
    path: Path | None,
    format: ModelFormat,
    shard_size: int,
    checkpoint: bool,
) -> None:
    """Fetch MODEL (NAME, NAME:VERSION, a digest, its beginning, or a job) to PATH, checked by its SHA-256.

    Without PATH it becomes MODEL.safetensors here, or in other formats the folder MODEL. Prints where it
    lies.
    """
    name = model.replace(":", "-")
    target = path or Path(f"{name}.safetensors" if format == "safetensors" else name)
    with invocation.client() as client:
        fetched = client.fetch_model(
            model, target, format=format, shard_bytes=shard_size, checkpoint=checkpoint
        )
    say(str(fetched))
