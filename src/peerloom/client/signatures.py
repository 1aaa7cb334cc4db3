"""A method's arguments, written once: as the fields of the value that they make."""

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import MISSING, Field, fields
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

B = TypeVar("B")
C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")


def taking(
    build: Callable[P, B],
) -> Callable[
    [Callable[[C, B], Coroutine[Any, Any, T]]], Callable[Concatenate[C, P], Coroutine[Any, Any, T]]
]:
    """Gives a method that takes a value of the dataclass `build` the arguments of its constructor instead.

    So the arguments' names, types and defaults stand in the dataclass only; type checkers, `help` and
    `inspect.signature` show them as the method's.
    """

    def decorate(
        method: Callable[[C, B], Coroutine[Any, Any, T]],
    ) -> Callable[Concatenate[C, P], Coroutine[Any, Any, T]]:
        @wraps(method)
        async def call(owner: C, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return await method(owner, build(*args, **kwargs))

        own = inspect.signature(method)
        first = next(iter(own.parameters.values()))
        call.__signature__ = own.replace(parameters=[first, *_parameters_of(build)])  # type: ignore[attr-defined]  # inspect reads it
        return call

    return decorate


def _parameters_of(build: Any) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY if each.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=_default_of(each),
            annotation=each.type,
        )
        for each in fields(build)
    ]


def _default_of(field: Field[Any]) -> Any:
    if field.default is not MISSING:
        return field.default
    return inspect.Parameter.empty if field.default_factory is MISSING else field.default_factory()
