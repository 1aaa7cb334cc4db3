"""`peerloom sync`."""

from collections.abc import Mapping
from typing import Any

import click

from peerloom.cli.group import LazyGroup
from peerloom.cli.invocation import Invocation, output_option
from peerloom.cli.output import print_document, print_fields, say, table_lines, to_plain
from peerloom.cli.predicting import parts_of, setting_of, setting_options
from peerloom.errors import InvalidArgumentError
from peerloom.kit.codec_sizes import VALUE_BYTES
from peerloom.kit.federated_rounds import FEDERATED_CHOICES, FederatedRounds
from peerloom.kit.printable import Column
from peerloom.kit.quantity_texts import shown_bytes
from peerloom.kit.sync_explained import explained, method_to_explain
from peerloom.kit.sync_grammar import CHOICES
from peerloom.kit.sync_method import PRESETS, SyncMethod
from peerloom.kit.sync_model.prediction import StepPrediction
from peerloom.kit.sync_model.stale_prediction import predicted
from peerloom.kit.sync_model.sync_choice import RELAXED, choose_sync

_HERE = "peerloom.cli.commands.sync"
_PRESET_COLUMNS = (
    Column("PRESET", lambda row: row["preset"] + (" (default)" if row["is_default"] else "")),
    Column("METHOD", lambda row: row["method"]),
)
_CHOICE_COLUMNS = (
    Column("KEY", lambda row: row["key"]),
    Column("VALUE", lambda row: row["value"] + (" (default)" if row["is_default"] else "")),
    Column("WHAT IT DOES", lambda row: row["does"]),
)


_RANKED_COLUMNS = (
    Column("METHOD", lambda row: str(row.method)),
    Column("STEP", lambda row: parts_of(row.prediction)["predicted step"], right=True),
    Column("COMPUTING", lambda row: parts_of(row.prediction)["computing"], right=True),
    Column("EXPOSED", lambda row: parts_of(row.prediction)["exposed communication"], right=True),
    Column("COMPRESSION", lambda row: parts_of(row.prediction)["compression"], right=True),
    Column("SENT", lambda row: shown_bytes(row.prediction.sent_bytes), right=True),
)


@click.group(
    cls=LazyGroup,
    table={
        "list": (f"{_HERE}:list_sync", "The presets, and the choices of each key."),
        "explain": (f"{_HERE}:explain_sync", "What a method does, costs and guarantees."),
    },
)
def sync() -> None:
    """How a training's gradients become their sum in each step. METHOD is a preset or KEY=VALUE,… pairs."""


@click.command("list")
@setting_options
@click.option(
    "--quality", default=RELAXED, show_default=True, help="exact, near or relaxed: what sums may lose."
)
@output_option
@click.pass_obj
def list_sync(invocation: Invocation, /, quality: str, **chosen: Any) -> None:
    """The presets, and the choices of each key; give a preset or KEY=VALUE,… to 'train --sync'.

    With --workers, --rate, --parameters and --compute: all methods that keep the quality, by a step's
    predicted time.
    """
    setting = setting_of(chosen)
    if setting is None:
        _list_choices(invocation)
        return
    found = choose_sync(setting, quality)
    rows = (found.chosen, *found.others)
    if invocation.output != "table":
        ranked = [{"method": str(row.method), **_numbers(row.prediction)} for row in rows]
        print_document({"reason": found.reason, "ranked": ranked}, invocation.output)
        return
    for line in table_lines(rows, _RANKED_COLUMNS):
        say(line)
    say(f"\n{found.reason[0].upper()}{found.reason[1:]}. Predicted, not measured.")


def _numbers(prediction: StepPrediction) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(prediction)
    return {name: value for name, value in plain.items() if name != "timeline"}


def _list_choices(invocation: Invocation) -> None:
    presets = [
        {"preset": name, "method": str(method), "is_default": method == SyncMethod()}
        for name, method in PRESETS.items()
    ]
    choices, defaults = _choices(CHOICES, SyncMethod()), FederatedRounds()
    federated = _choices(FEDERATED_CHOICES, defaults)
    if invocation.output != "table":
        listed = {"presets": presets, "choices": choices, "federated": federated}
        print_document(listed, invocation.output)
        return
    for line in (*table_lines(presets, _PRESET_COLUMNS), "", *table_lines(choices, _CHOICE_COLUMNS)):
        say(line)
    say("\nint8, int4, mxfp4, 2bit, 1bit, topk, cut, groups and partial get topology=direct where none is")
    say("given; a ring takes none.")
    say("'train --sync auto' measures and chooses; auto,quality=near has the codecs to choose from, too.")
    say("powersgd goes around a ring, too. codec_from needs a codec: it is for parameters of that size on.")
    say("outer needs a period; without a period gradients are exchanged at each batch.")
    say("ssp:S is staleness=S, and asp staleness=any; pairs may follow, as in 'ssp:2,late=weighted'.\n")
    for line in table_lines(federated, _CHOICE_COLUMNS):
        say(line)
    say("\nThese stand behind 'federated', as in 'federated,algorithm=fedprox,clients=0.5', with topology")
    say("and codec: each worker trains on data that only it reads, and a step is a round of some of them.")


def _choices(choices: Mapping[str, Mapping[str, str]], defaults: object) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": value, "does": does, "is_default": getattr(defaults, key, "") == value}
        for key, values in choices.items()
        for value, does in values.items()
    ]


@click.command("explain")
@click.argument("method")
@setting_options
@output_option
@click.pass_obj
def explain_sync(invocation: Invocation, /, method: str, **chosen: Any) -> None:
    """What a method does, its bytes a step for each parameter, and what it guarantees.

    With --workers, --rate, --parameters and --compute also what a step would take, and of what parts.
    """
    parsed, setting = method_to_explain("METHOD", method), setting_of(chosen)
    if setting is not None and parsed.federated is not None:
        what = "a method whose rounds have as many batches on all: a federated client's data decide how many"
        raise InvalidArgumentError.of_field("METHOD", method, what)
    found = explained(parsed)
    prediction = predicted(parsed, setting) if setting else None
    if invocation.output != "table":
        added = {} if prediction is None else {"prediction": prediction}
        print_document({**to_plain(found), **added}, invocation.output)
        return
    size = f"{found.bytes_per_parameter:.3g} for {VALUE_BYTES}: {found.bytes_ratio:.3g} of codec=none"
    if parsed.low_rank:
        size += ", in a square matrix of a million"
    if found.period:
        size += "; once a round"
    if found.averages:
        what = "within groups" if parsed.partial is None else "of a part"
        size += f", and {found.bytes_per_average:.3g} in each average {what}"
    if found.period and parsed.federated is None:
        of_round = found.bytes_per_parameter + found.averages * found.bytes_per_average
        size += f", so {of_round / found.batches:.3g} a batch"
    print_fields(
        [
            ("method", found.method),
            ("schedule", found.schedule),
            ("topology", found.topology),
            ("codec", found.codec),
            ("period", found.period),
            ("outer", found.outer),
            ("clients", found.clients),
            ("older updates", found.stale),
            ("older gradients", found.late_gradients),
            ("bytes a parameter", size),
            ("small messages", found.small_messages),
            ("sums", found.sums),
            ("ranks", found.ranks),
            *(parts_of(prediction).items() if prediction else ()),
        ]
    )
