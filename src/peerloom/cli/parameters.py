"""Kinds of values that several commands take."""

import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import click

from peerloom.cli.invocation import Command, default_state
from peerloom.errors import InvalidArgumentError

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_BYTES = {"kB": 10**3, "MB": 10**6, "GB": 10**9}


class SlotList(click.ParamType[tuple[int, ...]]):
    """Numbers with commas between them: the slots of node-1, node-2, ..."""

    name = "slots"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return tuple(int(part) for part in str(value).split(",") if part.strip())
        except ValueError:
            self.fail(f"{value!r} is not a list of whole numbers such as 3,2,2,1,1.", param, ctx)


class NameList(click.ParamType[tuple[str, ...]]):
    """Names with commas between them."""

    name = "names"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(part.strip() for part in str(value).split(",") if part.strip())


class Pair(click.ParamType[tuple[str, str]]):
    """key=value."""

    name = "key=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not key or not equals:
            self.fail(f"{value!r} is not of the form key=value.", param, ctx)
        return key, text


class Duration(click.ParamType[timedelta]):
    """A number with its unit: 30s, 15m, 2h, 7d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        found = re.fullmatch(r"(\d{1,6})([smhd])", str(value))
        if found is None:
            self.fail(f"{value!r} is not a duration such as 30s, 15m, 2h or 7d.", param, ctx)
        return timedelta(**{_UNITS[found[2]]: int(found[1])})


class Size(click.ParamType[int]):
    """A number of bytes with its unit, powers of 1000: 500kB, 200MB, 5GB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d{1,6})(kB|MB|GB)", str(value))
        if found is None or not int(found[1]):
            self.fail(f"{value!r} is not a size such as 500kB, 200MB or 5GB.", param, ctx)
        return int(found[1]) * _BYTES[found[2]]


def _checked_places(_: click.Context, __: click.Parameter, places: tuple[str, ...]) -> tuple[str, ...]:
    if places:
        from peerloom.client.tracking.destinations import tracker_for  # here, as it brings gRPC

        for place in places:
            tracker_for(place)
    return places


def track_option(command: Command) -> Command:
    """Adds --track; places that can't be are refused before anything begins."""
    return click.option(
        "--track",
        "places",
        multiple=True,
        callback=_checked_places,
        metavar="TRACKER:PLACE",
        help="Tell a tracker of the job: tensorboard:DIR, mlflow:URI or wandb:PROJECT[?mode=offline]; "
        "repeatable.",
    )(command)


def check_followed(places: Sequence[str], detach: bool) -> None:
    """Raises InvalidArgumentError where trackers are to be told by a command that doesn't wait."""
    if places and detach:
        raise InvalidArgumentError.of_field(
            "track", places[0], "without --detach; later: peerloom jobs watch JOB --track TRACKER:PLACE"
        )


def nodes_option(command: Command) -> Command:
    """Adds --nodes."""
    return click.option(
        "--nodes",
        "slots",
        type=SlotList(),
        default="3,2,2,1,1",
        show_default=True,
        metavar="SLOTS,...",
        help="One node for each number, which is how many slots it lends.",
    )(command)


def state_option(command: Command) -> Command:
    """Adds --state."""
    return click.option(
        "--state",
        type=click.Path(file_okay=False, path_type=Path),
        default=default_state,
        metavar="DIR",
        help="The folder that holds everything.  [default: PEERLOOM_STATE or ~/.peerloom]",
    )(command)


def choice_of(words: Any) -> click.Choice[str]:
    """One of the words of an SDK type (a Literal), but for "unknown", which nobody asks for."""
    return click.Choice([word for word in get_args(words) if word != "unknown"])
