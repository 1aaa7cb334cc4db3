"""The flags that say where a step is to be predicted, and how a prediction is shown."""

import re
from collections.abc import Callable
from statistics import harmonic_mean
from typing import TYPE_CHECKING, Any, TypeVar

import click

from peerloom.cli.invocation import Command
from peerloom.errors import ConfigurationError, InvalidArgumentError
from peerloom.kit.quantity_texts import shown_bytes, shown_s

if TYPE_CHECKING:
    from peerloom.kit.sync_model.prediction import StepPrediction
    from peerloom.kit.sync_model.sync_setting import SyncSetting

One = TypeVar("One")
_COUNTS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_COUNT = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)([kMG]?)")
_NEEDED = ("workers", "rate", "parameters", "compute")


class Quantity(click.ParamType[float]):
    """A number with its unit, read by a function that raises ConfigurationError."""

    def __init__(self, name: str, read: Callable[[str], float]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return self._read(str(value))
        except ConfigurationError as error:
            self.fail(error.message, param, ctx)


class Quantities(click.ParamType[tuple[float, ...]]):
    """Such numbers with commas between them: one for all workers, or one for each."""

    def __init__(self, name: str, read: Callable[[str], float]) -> None:
        self.name = name
        self._one = Quantity(name, read)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(self._one.convert(part.strip(), param, ctx) for part in str(value).split(","))


def count_of(text: str) -> float:
    """E.g. "11M" as 11e6. Raises ConfigurationError."""
    found = _COUNT.fullmatch(text)
    if found is None:
        raise ConfigurationError(f"{text!r} must be a number such as 6000 or 11M.")
    return float(found[1]) * _COUNTS[found[2]]


def rate_of(text: str) -> float:
    """E.g. "50Mbps" as 5e7. Raises ConfigurationError."""
    from peerloom.testbed.quantities import bits_per_s

    return bits_per_s(text)


def seconds_of(text: str) -> float:
    """E.g. "10ms" as 0.01. Raises ConfigurationError."""
    from peerloom.testbed.quantities import seconds

    return seconds(text)


def setting_options(command: Command) -> Command:
    """Adds --workers, --rate, --up-rate, --delay, --parameters, --compute and --layers."""
    for option in reversed(
        (
            click.option("--workers", type=int, metavar="N", help="Predict a step of so many workers."),
            click.option(
                "--rate",
                type=Quantities("rate", rate_of),
                metavar="RATE,...",
                help="Of their links, e.g. 50Mbps; one for all, or one for each.",
            ),
            click.option(
                "--up-rate",
                type=Quantities("rate", rate_of),
                metavar="RATE,...",
                help="Up.  [default: --rate]",
            ),
            click.option(
                "--delay",
                type=Quantities("time", seconds_of),
                default="0",
                show_default=True,
                metavar="TIME,...",
                help="Of their links, one way, e.g. 10ms; between two workers both count.",
            ),
            click.option(
                "--parameters", type=Quantity("number", count_of), metavar="NUMBER", help="E.g. 11M."
            ),
            click.option(
                "--compute",
                type=Quantities("time", seconds_of),
                metavar="TIME,...",
                help="A worker's step without synchronising, by an equal share of the batch, e.g. 1.05s.",
            ),
            click.option(
                "--layers", default=16, show_default=True, help="Equal ones, which the model is made of."
            ),
        )
    ):
        command = option(command)
    return command


def setting_of(chosen: dict[str, Any]) -> "SyncSetting | None":
    """What the flags describe; None without any. Raises InvalidArgumentError."""
    from peerloom.kit.sync_model.access_links import AccessLink, SyncNetwork
    from peerloom.kit.sync_model.layer_times import even_layers
    from peerloom.kit.sync_model.sync_setting import SyncSetting

    missing = [f"--{name}" for name in _NEEDED if chosen[name] is None]
    if len(missing) == len(_NEEDED):
        return None
    if missing:
        raise InvalidArgumentError(f"To predict a step, {' and '.join(missing)} must be given too.")
    workers = chosen["workers"]
    if not 1 <= workers <= 1024:
        raise InvalidArgumentError.of_field("--workers", workers, "from 1 to 1,024")
    rates, delays = for_each("--rate", chosen["rate"], workers), for_each("--delay", chosen["delay"], workers)
    ups = for_each("--up-rate", chosen["up_rate"], workers) if chosen["up_rate"] else rates
    links = [AccessLink(up, down) for up, down in zip(ups, rates, strict=True)]
    computes_s = for_each("--compute", chosen["compute"], workers)
    # Shares are fitted to speeds, so that all take the same time: the harmonic mean.
    compute_s = harmonic_mean(computes_s)
    layers = even_layers(int(chosen["parameters"]), compute_s, chosen["layers"])
    speeds = tuple(compute_s / one_s for one_s in computes_s)
    return SyncSetting(SyncNetwork.of_access(links, delays), layers, speeds=speeds)


def for_each(flag: str, values: tuple[One, ...], count: int) -> tuple[One, ...]:
    """One value for all, or one for each. Raises InvalidArgumentError for another number of them."""
    if len(values) not in (1, count):
        raise InvalidArgumentError.of_field(f"values of {flag}", len(values), f"1, or {count}")
    return values * count if len(values) == 1 else values


def parts_of(prediction: "StepPrediction") -> dict[str, str]:
    """A prediction's numbers as people read them, by name."""
    return {
        "predicted step": shown_s(prediction.step_s),
        "computing": shown_s(prediction.compute_s),
        "exposed communication": shown_s(prediction.exposed_s),
        "compression": shown_s(prediction.compression_s),
        "sent a step": f"{shown_bytes(prediction.sent_bytes)} by the busiest worker",
    }
