"""The public names: sorted, all there, documented, and loaded only when used."""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy.typing as npt
import pytest

import peerloom
from peerloom.client.artifacts import Artifacts
from peerloom.client.door import Door


def test_the_public_names_are_sorted_and_there() -> None:
    assert peerloom.__all__ == sorted(peerloom.__all__)
    for name in peerloom.__all__:
        assert getattr(peerloom, name) is not None
        assert name in dir(peerloom)


def test_every_public_name_is_documented() -> None:
    for name in peerloom.__all__:
        if name != "__version__":
            documented = getattr(peerloom, name).__doc__
            # A dataclass without a docstring gets its signature as one.
            assert documented is not None, name
            assert not documented.startswith(f"{name}("), name


def test_every_exception_and_value_of_the_sdk_is_public() -> None:
    from peerloom import errors
    from peerloom.client import types

    classes = {
        name for home in (errors, types) for name, value in vars(home).items() if isinstance(value, type)
    }
    assert {name for name in classes if name[0].isupper()} - {"Iterable", "Mapping"} <= set(peerloom.__all__)


def test_all_that_the_sdk_hands_out_is_public() -> None:
    """What its calls give, and what that has in turn: so all of it is in the reference, too."""
    public = {getattr(peerloom, name) for name in peerloom.__all__ if name != "__version__"} | {
        Artifacts,
        Door,
    }
    found = {
        f"{part.__qualname__}: {one.__name__}"
        for thing in public
        for part in (*_calls(thing), thing)
        for one in _classes(get_type_hints(part, localns={"npt": npt, "ArrayLike": npt.ArrayLike}).values())
        if one.__module__.startswith("peerloom.client") and one not in public
    }
    assert found == set()


def test_the_sdk_s_page_names_each_call() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "sdk.md").read_text()
    calls = {
        prefix + part.__name__
        for thing, prefix in ((peerloom.Client, ""), (Artifacts, "artifacts."), (Door, "door."))
        for part in _calls(thing)
    }
    assert {call for call in calls if f"{call}(" not in page} == {"close", "address"}, "a block closes it"


def _calls(thing: Any) -> Iterator[Any]:
    """The public methods and properties of a class."""
    for name, value in vars(thing).items() if isinstance(thing, type) else ():
        if not name.startswith("_") and (isinstance(value, property) or callable(value)):
            yield value.fget if isinstance(value, property) else value


def _classes(hints: Iterable[Any]) -> Iterator[type]:
    for hint in hints:
        if isinstance(hint, type):
            yield hint
        yield from _classes(hint if isinstance(hint, list) else get_args(hint))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'Klient'"):
        peerloom.Klient  # noqa: B018  # reading it is the test


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import peerloom", "{'grpc', 'google.protobuf', 'asyncio', 'torch', 'numpy'}"),
        ("import peerloom; peerloom.Client; peerloom.AsyncClient", "{'torch', 'sqlalchemy', 'numpy'}"),
    ],
)
def test_an_import_loads_only_what_it_needs(statement: str, absent: str) -> None:
    """In a fresh process: none of the heavy modules is there after it."""
    check = (
        f"{statement}; import sys; found = {absent} & set(sys.modules); sys.exit(str(found) if found else 0)"
    )
    subprocess.run([sys.executable, "-c", check], check=True, timeout=60)
