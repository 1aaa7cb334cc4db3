"""docs/reference/python.md, which generate_reference.py writes: docstrings and signatures of public names."""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any

import peerloom
from peerloom import testing
from peerloom.client.artifacts import Artifacts
from peerloom.client.door import Door
from peerloom.client.types.events import JobEvent
from peerloom.worker.elastic.elastic_run import ElasticRun
from peerloom.worker.task import Split, Task

HEAD = """# Python, name by name

Made from the docstrings. [The SDK](sdk.md) tells how the names go together. All are names of `peerloom`, but
`Task` and `Split` of `peerloom.worker.task`, and those below [Testing](#testing) of `peerloom.testing`. What
`Client` and `JobHandle` do, `AsyncClient` and `AsyncJobHandle` do as coroutines and async iterators; each
docstring holds for both.
"""
ASYNC = {"AsyncClient", "AsyncJobHandle"}
# Called by the training in a worker, not by a script.
INNER = {"ElasticRun.placed", "ElasticRun.measured"}
# By what a user has them.
NAMES = {"Artifacts": "client.artifacts", "Door": "client.door", "ElasticRun": "run"}
_MODULE = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])")


def python_page() -> str:
    """All that `peerloom.__all__` names, tasks, and what clients have below them."""
    public = {name: getattr(peerloom, name) for name in peerloom.__all__ if name != "__version__"}
    errors = [each for name, each in public.items() if name.endswith("Error")]
    values = [each for each in public.values() if dataclasses.is_dataclass(each)]
    events = [each for each in values if issubclass(each, JobEvent)]
    others = set(public) - {each.__name__ for each in (*errors, *values)} - ASYNC
    assert others == {"Client", "Embedded", "JobHandle", "elastic"}, f"no section shows one of {others}"
    sections = {
        "Clients": [peerloom.Client, peerloom.AsyncClient, Artifacts, Door],
        "Jobs": [peerloom.JobHandle, peerloom.AsyncJobHandle],
        "A system of your own": [peerloom.Embedded],
        "An elastic loop": [peerloom.elastic, ElasticRun],
        "Tasks": [Task, Split],
        "Testing": [getattr(testing, name) for name in testing.__all__],
        "A job's events": [JobEvent, *(each for each in events if each is not JobEvent)],
        "Values": [each for each in values if each not in events],
        "Errors": sorted(errors, key=lambda each: (each is not peerloom.PeerloomError, each.__name__)),
    }
    parts = [HEAD]
    for heading, things in sections.items():
        parts += [f"## {heading}\n", *(part for thing in things for part in described(thing))]
    return "\n".join(parts)


def described(thing: Any) -> Iterator[str]:
    """A class with its public members, or a function, as Markdown."""
    name = NAMES.get(thing.__name__, thing.__name__)
    is_error = inspect.isclass(thing) and issubclass(thing, peerloom.PeerloomError)
    yield f"### `{name}`\n"
    if thing.__name__ not in NAMES and not is_error:  # what a user makes or calls
        yield f"```python\n{signature(thing.__name__, thing)}\n```\n"
    yield f"{inspect.getdoc(thing)}\n"
    if inspect.isclass(thing) and not is_error and thing.__name__ not in ASYNC:
        yield from (member(thing, each, name) for each in own_members(thing))


def own_members(thing: type[Any]) -> list[str]:
    """Public methods and properties with a docstring, in the order in which the class has them."""
    names = [name for each in reversed(thing.__mro__) for name in vars(each)]
    return [
        name
        for name in dict.fromkeys(names)
        if not name.startswith("_")
        and f"{thing.__name__}.{name}" not in INNER
        and inspect.getdoc(inspect.getattr_static(thing, name))
        and (callable(getattr(thing, name)) or isinstance(inspect.getattr_static(thing, name), property))
    ]


def member(thing: type[Any], name: str, of: str) -> str:
    """A method or property with its docstring, as an item below its class."""
    found = inspect.getattr_static(thing, name)
    heading, words = f"#### `{of}.{name}`\n", f"{inspect.getdoc(found)}\n"
    if isinstance(found, property):
        return f"{heading}\n{words}"
    return f"{heading}\n```python\n{signature(name, getattr(thing, name))}\n```\n\n{words}"


def signature(name: str, call: Any) -> str:
    """A call as one would write it, a parameter a line where it is long; modules' names are left out."""
    found = inspect.signature(call)
    parameters = [each for each in found.parameters.values() if each.name != "self"]
    found = found.replace(parameters=parameters)
    if inspect.isclass(call):
        found = found.replace(return_annotation=inspect.Signature.empty)
    text = f"{name}{plain(found)}"
    if len(text) <= 100:
        return text
    lines, bare = [f"{name}("], False
    for each in parameters:
        if each.kind is inspect.Parameter.KEYWORD_ONLY and not bare:
            lines, bare = [*lines, "    *,"], True
        lines.append(f"    {plain(each)},")
    gives = "" if found.return_annotation is inspect.Signature.empty else text[text.rindex(" -> ") :]
    return "\n".join([*lines, f"){gives}"])


def plain(part: inspect.Signature | inspect.Parameter) -> str:
    """A signature or parameter without modules' names, and without what only Python sees of a default."""
    text = _MODULE.sub("", str(part)).replace("<factory>", "...").replace("'", '"')
    return re.sub(r"<function (\w+) at \w+>", r"\1", text)
