"""The built-in tasks by name, known without importing torch, so that trainer and CLI can ask."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from peerloom.errors import InvalidArgumentError, NotFoundError, nearest

_CLASS_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


@dataclass(frozen=True)
class TaskEntry:
    """What is known of a built-in task before it is imported.

    `path` is "module:Class"; `epochs`, `batch_size` (samples a step over all workers) and `learning_rate`
    are the task's defaults; `arguments` maps the name of each argument to its help, and `required` names
    those that can't be left out; `paths` names those that are files or folders of the node. Where the data
    that it uses without any may differ between machines, `own_data_vary` says so, in a sentence.
    """

    name: str
    path: str
    epochs: int
    batch_size: int
    learning_rate: float
    description: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    own_data_vary: str = ""


BUILT_IN: Mapping[str, TaskEntry] = {
    entry.name: entry
    for entry in (
        TaskEntry(
            name="digits",
            path="peerloom.worker.tasks.digits:Digits",
            epochs=12,
            batch_size=32,
            learning_rate=0.05,
            description="1,797 handwritten digits of 8x8 pixels, shipped with scikit-learn; a small CNN.",
        ),
        TaskEntry(
            name="mnist",
            path="peerloom.worker.tasks.mnist:Mnist",
            epochs=3,
            batch_size=32,
            learning_rate=0.01,
            description="Handwritten digits of 28x28 pixels from the official IDX files; a small CNN.",
            arguments={
                "data": "Folder on the nodes that holds the IDX files, plain or .gz.",
                "test_fraction": "Only for a folder without training files: this part of its test files, "
                "above 0 and below 1, is tested on; the rest is trained on.",
            },
            required=frozenset({"data"}),
            paths=frozenset({"data"}),
        ),
        TaskEntry(
            name="cifar10",
            path="peerloom.worker.tasks.cifar10:Cifar10",
            epochs=1,
            batch_size=4,
            learning_rate=0.001,
            description="Photographs of 32x32 pixels from the official binary files; a small CNN.",
            arguments={
                "data": "Folder on the nodes that holds data_batch_1.bin to _5.bin and test_batch.bin."
            },
            required=frozenset({"data"}),
            paths=frozenset({"data"}),
        ),
        TaskEntry(
            name="text",
            path="peerloom.worker.tasks.text:Text",
            epochs=1,
            batch_size=16,
            learning_rate=0.003,
            description="Text from files or Python's own reference, byte by byte; a small transformer.",
            arguments={
                "data": "File of text on the nodes, or a folder of *.txt files; else Python's own reference.",
                "context": "Bytes that the model sees at most, 64 unless given.",
                "width": "Length of a byte's vector, 64 unless given.",
                "depth": "Blocks of attention, 3 unless given.",
                "heads": "Heads of a block's attention, 4 unless given; a divisor of width.",
            },
            paths=frozenset({"data"}),
            own_data_vary="Python's own reference is another text in each version of Python",
        ),
        TaskEntry(
            name="emulated",
            path="peerloom.worker.tasks.emulated:Emulated",
            epochs=1,
            batch_size=8,
            learning_rate=0.01,
            description="For trying networks: emulated compute, which is waited for; real gradients.",
            arguments={
                "parameters": "Of the whole model, about; 1,000,000 unless given.",
                "layers": "Among which they are spread, 10 unless given.",
                "sample_ms": "Milliseconds that a sample takes, both passes; 10 unless given.",
                "samples": "Samples of an epoch, 512 unless given.",
                "like": "mnist or cifar10: the layers of that task's network, in place of the two above.",
                "step_ms": "Milliseconds that a step takes beside its samples; none unless given.",
                "micro_batch": "The most samples that are computed at once; all of a worker's unless given.",
            },
        ),
    )
}


def resolve(task: str) -> TaskEntry | None:
    """The entry of a built-in task, or None for an own one in the form "module:Class".

    Raises NotFoundError for an unknown plain name (with the nearest ones) and InvalidArgumentError for
    a text with a colon that can't be module:Class.
    """
    if ":" in task:
        if not _CLASS_PATH.fullmatch(task):
            raise InvalidArgumentError.of_field("task", task[:80], "a built-in name or module:Class")
        return None
    if task in BUILT_IN:
        return BUILT_IN[task]
    error = NotFoundError.of_name("task", task[:80], BUILT_IN)
    rest = f"Built in are {', '.join(sorted(BUILT_IN))}; an own task is written module:Class."
    raise NotFoundError(f"{error.message} {rest}", reason=error.reason, metadata=error.metadata)


def check_arguments(entry: TaskEntry, arguments: Mapping[str, str]) -> None:
    """Raises InvalidArgumentError for an argument the task doesn't have, or lacks and needs."""
    for name in arguments:
        if name not in entry.arguments:
            raise unknown_argument(entry.name, name, entry.arguments)
    for name in sorted(entry.required - set(arguments)):
        raise InvalidArgumentError(
            f"The task {entry.name!r} needs the argument {name!r}: {entry.arguments[name]}",
            reason="TASK_ARGUMENT_MISSING",
            metadata={"field": f"task_arguments[{name}]"},
        )


def unknown_argument(task: str, name: str, known: Mapping[str, object]) -> InvalidArgumentError:
    """The error for an argument `name` that `task`, which has the `known` ones, doesn't have."""
    near = nearest(name, known)
    if near:
        hint = f"Did you mean {' or '.join(near)}?"
    else:
        hint = f"It has {', '.join(sorted(known))}." if known else "It takes no arguments."
    return InvalidArgumentError(
        f"The task {task!r} has no argument {name!r}. {hint}",
        reason="TASK_ARGUMENT_UNKNOWN",
        metadata={"field": f"task_arguments[{name}]", "nearest": ",".join(near)},
    )
