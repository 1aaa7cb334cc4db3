"""The flags that say what a plan is to be made for: layers, slots, links, and a batch."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peerloom.cli.invocation import Command
from peerloom.cli.predicting import Quantities, Quantity, count_of, for_each, rate_of, seconds_of
from peerloom.errors import InvalidArgumentError

if TYPE_CHECKING:
    from peerloom.kit.plan_model.model_layers import ModelLayer
    from peerloom.kit.plan_model.plan_setting import PlanNetwork, PlanSetting

_NEVER = "never"


def size_of(text: str) -> float:
    """E.g. "2GB" as 2e9. Raises ConfigurationError."""
    from peerloom.testbed.quantities import size_bytes

    return size_bytes(text)


def stay_of(text: str) -> float:
    """E.g. "2h" as 7,200; "never" is infinite. Raises ConfigurationError."""
    return float("inf") if text == _NEVER else seconds_of(text)


class Names(click.ParamType[tuple[str, ...]]):
    """Names with commas between them."""

    name = "names"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        return value if isinstance(value, tuple) else tuple(one.strip() for one in str(value).split(","))


def _times(flag: str, default: str, text: str) -> Any:
    kind = Quantity("time", seconds_of)
    return click.option(flag, type=kind, default=default, show_default=True, metavar="TIME", help=text)


def _each(flag: str, kind: Quantities, metavar: str, default: str | None, text: str) -> Any:
    shown = default is not None
    return click.option(
        flag, type=kind, default=default, show_default=shown, metavar=f"{metavar},...", help=text
    )


_MODEL_OPTIONS = (
    click.option(
        "--layers",
        "layers_file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE.json",
        help="The model's layers: a list of objects with parameters, forward_s, output_bytes, ...",
    ),
    click.option(
        "--model", metavar="MODEL", help="Or digits, mlp:A:B:..., transformer:L:D[:SYMBOLS[:VOCABULARY]]."
    ),
    click.option(
        "--operations",
        type=Quantity("number", count_of),
        default="10G",
        show_default=True,
        metavar="NUMBER",
        help="That a slot of speed 1 makes in a second.",
    ),
    click.option("--batch", type=int, metavar="N", help="Samples a step."),
)
_SLOT_OPTIONS = (
    click.option("--slots", type=int, metavar="N", help="How many there are."),
    _each("--memory", Quantities("size", size_of), "SIZE", None, "Of each, e.g. 8GB; one for all, or each."),
    _each("--speed", Quantities("number", count_of), "NUMBER", "1", "Of each, e.g. 1,1,0.25."),
    _each("--rate", Quantities("rate", rate_of), "RATE", None, "Of their links, e.g. 50Mbps."),
    _each("--up-rate", Quantities("rate", rate_of), "RATE", None, "Up.  [default: --rate]"),
    _each(
        "--delay",
        Quantities("time", seconds_of),
        "TIME",
        "0",
        "One way; between two slots both delays count.",
    ),
    click.option(
        "--hosts", type=Names(), metavar="NAME,...", help="Each slot's; on one host none waits for links."
    ),
    _each(
        "--interruption", Quantities("time", stay_of), "TIME", _NEVER, "Mean time until a slot breaks off."
    ),
)
_COST_OPTIONS = (
    click.option(
        "--value-bytes", default=4.0, show_default=True, help="A parameter's, its gradient's, a value's."
    ),
    click.option(
        "--optimiser-bytes", default=8.0, show_default=True, help="That the optimiser keeps a parameter."
    ),
    click.option(
        "--sync", default="wfbp-a2a", show_default=True, help="How a stage's slots sum their gradients."
    ),
    _times("--pass-overhead", "1ms", "Of each pass of a micro-batch, beside its samples."),
    _times("--regroup", "1s", "In which all find together again after an interruption."),
    _times("--snapshot", "1min", "From copy to copy of the state of a stage with one slot."),
)


def plan_options(command: Command) -> Command:
    """Adds what a PlanSetting is made of."""
    for option in reversed((*_MODEL_OPTIONS, *_SLOT_OPTIONS, *_COST_OPTIONS)):
        command = option(command)
    return command


def plan_setting_of(chosen: dict[str, Any]) -> "PlanSetting":
    """What the flags describe. Raises InvalidArgumentError."""
    from peerloom.kit.plan_model.plan_setting import PlanSetting, PlanSlot
    from peerloom.kit.sync_grammar import parse_sync
    from peerloom.kit.sync_model.scheme import scheme_of

    missing = [f"--{name}" for name in ("slots", "memory", "batch") if chosen[name] is None]
    if missing:
        raise InvalidArgumentError(f"For a plan {' and '.join(missing)} must be given too.")
    count = chosen["slots"]
    if count < 1:
        raise InvalidArgumentError.of_field("--slots", count, "at least 1")
    speeds, memory, stays = (
        for_each(f"--{name}", chosen[name], count) for name in ("speed", "memory", "interruption")
    )
    slots = [
        PlanSlot(f"slot-{number}", speed, size, stay)
        for number, (speed, size, stay) in enumerate(zip(speeds, memory, stays, strict=True))
    ]
    return PlanSetting(
        layers=_layers(chosen),
        slots=tuple(slots),
        network=_network(chosen, count),
        batch=chosen["batch"],
        value_bytes=chosen["value_bytes"],
        optimiser_bytes=chosen["optimiser_bytes"],
        pass_overhead_s=chosen["pass_overhead"],
        regroup_s=chosen["regroup"],
        snapshot_s=chosen["snapshot"],
        sync=scheme_of(parse_sync("--sync", chosen["sync"])),
    )


def _network(chosen: dict[str, Any], count: int) -> "PlanNetwork":
    from peerloom.kit.plan_model.plan_setting import SAME_HOST_BITS_PER_S, PlanNetwork
    from peerloom.kit.sync_model.access_links import AccessLink

    hosts = for_each("--hosts", chosen["hosts"], count) if chosen["hosts"] else ()
    if chosen["rate"] is None and count > 1 and len(set(hosts)) != 1:
        raise InvalidArgumentError("Several slots send to each other: say how fast with --rate.")
    rates = for_each("--rate", chosen["rate"] or (SAME_HOST_BITS_PER_S,), count)
    ups = for_each("--up-rate", chosen["up_rate"] or rates, count)
    links = [AccessLink(up, down) for up, down in zip(ups, rates, strict=True)]
    return PlanNetwork.of_access(links, for_each("--delay", chosen["delay"], count), hosts)


def _layers(chosen: dict[str, Any]) -> "tuple[ModelLayer, ...]":
    from peerloom.kit.plan_model.known_models import known_model
    from peerloom.kit.plan_model.model_layers import layers_of_document

    path, model = chosen["layers_file"], chosen["model"]
    if (path is None) == (model is None):
        raise InvalidArgumentError("Say of which model: --model NAME or --layers FILE.json, one of both.")
    if path is None:
        return known_model(model, chosen["operations"], chosen["value_bytes"])
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgumentError(f"{path} can't be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise InvalidArgumentError(f"{path} isn't JSON: {error}.") from error
    return layers_of_document(document, chosen["operations"])
