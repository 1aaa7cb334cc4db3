"""Checkpoints and models in the one form that all plans have: from the stages' parts, and into them.

A stage's part is what `TrainingState` makes of its own tensors, with the same names. The whole is written a
tensor at a time by one worker, and read by each stage for its own names only.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from peerloom.errors import DataLossError
from peerloom.worker.plan.stage_links import StageLinks
from peerloom.worker.plan.tensor_file import TensorEntry, TensorFile, entry_of, in_file_order, read_tensors

COUNTERS = "counters"
_MODEL, _OPTIMISER = "model.", "optimiser."


def part_of(path: Path, names: frozenset[str]) -> dict[str, Tensor]:
    """Of a checkpoint of the whole what a stage with these `names` takes over by `TrainingState.take`.

    Raises DataLossError for a file that is no checkpoint.
    """
    try:
        tensors = read_tensors(path, lambda key: key == COUNTERS or name_in(key) in names)
        counters = json.loads(bytes(tensors[COUNTERS].tolist()))
        tensors[COUNTERS] = text_tensor(json.dumps(_divided(counters, names)))
    except (OSError, KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DataLossError(f"it isn't a state of this model: {error}") from error
    return tensors


def name_in(key: str) -> str:
    """The name in the model's state that a tensor of a checkpoint belongs to; "" of none."""
    if key.startswith(_MODEL):
        return key.removeprefix(_MODEL)
    return key.removeprefix(_OPTIMISER).rpartition(".")[0] if key.startswith(_OPTIMISER) else ""


def joined(counters: Sequence[Mapping[str, Any]], groups: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The counters of the whole, of those of all workers; `groups` are the names of the whole's."""
    first = counters[0]
    updater = dict(first["updater"])
    updater["state"] = {
        name: entries for each in counters for name, entries in each["updater"]["state"].items()
    }
    updater["groups"] = [
        {**group, "params": list(names)} for group, names in zip(updater["groups"], groups, strict=True)
    ]
    return {**first, "updater": updater}


def write_whole(
    links: StageLinks,
    path: Path,
    own: Mapping[str, Tensor],
    metadata: Mapping[str, str],
    added: Mapping[str, Tensor],
    writer: int = 0,
) -> None:
    """Writes the tensors of all workers, and those that the `writer` adds, into a file of that rank's.

    All call it together; of a stage with several workers one has tensors. Raises what `StageLinks.receive`
    does, OSError when there is no room.
    """
    failure: OSError | None = None
    total_bytes = sum(row[0] for row in links.gather([sum(tensor.nbytes for tensor in own.values())]))
    with links.patient(int(total_bytes)):
        if links.rank != writer:
            _send_part(links, own, writer)
            links.receive(writer)  # who left before all was received would take the rest of its part along
        else:
            failure = _write_parts(links, path, {**own, **added}, metadata)
            for rank in _others(links):
                links.send(rank, torch.ones(1))
            links.flush()
    if failure is not None:
        raise failure


def _others(links: StageLinks) -> list[int]:
    return [rank for rank in range(links.workers) if rank != links.rank]


def _send_part(links: StageLinks, own: Mapping[str, Tensor], writer: int) -> None:
    entries = in_file_order(entry_of(name, tensor) for name, tensor in own.items())
    told = [[entry.name, entry.dtype, list(entry.shape)] for entry in entries]
    links.send(writer, text_tensor(json.dumps(told)))
    for entry in entries:
        links.send(writer, own[entry.name])
    links.flush()


def _write_parts(
    links: StageLinks, path: Path, here: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> OSError | None:
    """What went wrong with the file; all parts are received nevertheless, as they are on their way."""
    sources = {entry_of(name, tensor): links.rank for name, tensor in here.items()}
    for rank in _others(links):
        for name, dtype, shape in json.loads(bytes(links.receive(rank).tensor.tolist())):
            sources[TensorEntry(name, dtype, tuple(shape))] = rank
    ordered = in_file_order(sources)
    file = TensorFile(path, ordered, metadata)
    try:
        failure = _failure_of(file.begin)
        for entry in ordered:
            rank = sources[entry]
            is_own = rank == links.rank
            tensor = here[entry.name] if is_own else links.receive(rank).tensor
            failure = failure or _failure_of(partial(file.write, tensor))
    finally:
        closing = _failure_of(file.end)
    return failure or closing


def _failure_of(action: Callable[[], None]) -> OSError | None:
    try:
        action()
    except OSError as error:
        return error
    return None


def gather_text(links: StageLinks, text: str, reader: int = 0) -> list[str]:
    """What each worker says, by rank, for the `reader`; the others get nothing."""
    if links.rank != reader:
        links.send(reader, text_tensor(text))
        links.flush()
        return []
    said = {n: bytes(links.receive(n).tensor.tolist()).decode() for n in _others(links)}
    return [said.get(rank, text) for rank in range(links.workers)]


def text_tensor(text: str) -> Tensor:
    """UTF-8 bytes, uint8 [n]."""
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def _divided(counters: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    updater = dict(counters["updater"])
    updater["state"] = {name: entries for name, entries in updater["state"].items() if name in names}
    updater["groups"] = [
        {**group, "params": [name for name in group["params"] if name in names]}
        for group in updater["groups"]
    ]
    return {**counters, "updater": updater}
