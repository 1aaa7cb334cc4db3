"""Checkpoints and models in the one form that all plans have: from the stages' parts, and into them.

A stage's part is what `TrainingState` makes of its own tensors, with the same names. The whole is written a
tensor at a time by one worker, and read by each stage for its own names only.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from peerloom.errors import DataLossError
from peerloom.worker.plan.stage_links import StageLinks
from peerloom.worker.plan.tensor_cuts import TensorCut
from peerloom.worker.plan.tensor_file import TensorEntry, TensorFile, entry_of, in_file_order, read_tensors

COUNTERS = "counters"
_MODEL, _OPTIMISER = "model.", "optimiser."


@dataclass(frozen=True)
class StatePieces:
    """The `cuts` of tensors of the model's state, by name, and which `piece` a worker has of each."""

    cuts: Mapping[str, TensorCut] = field(default_factory=dict)
    piece: int = 0

    def of(self, name: str, whole: Tensor) -> Tensor:
        """What the worker has of a tensor that belongs to that of this name; a scalar of an optimiser all."""
        cut = self.cuts.get(name)
        return cut.piece(whole, self.piece).clone() if cut and tuple(whole.shape) == cut.shape else whole

    def of_entry(self, key: str, whole: Tensor) -> Tensor:
        """The same of an entry of a checkpoint."""
        return self.of(name_in(key), whole)

    def given(
        self, own: Mapping[str, Tensor], name_of: Callable[[str], str]
    ) -> tuple[dict[str, Tensor], dict[str, TensorCut]]:
        """Of a worker's tensors those that it gives to a file of all, and how these are cut.

        `name_of` an entry is the name in the model's state. What is whole with all the first gives.
        """
        cuts = {
            key: cut
            for key, tensor in own.items()
            if (cut := self.cuts.get(name_of(key))) and tuple(tensor.shape) == cut.piece_shape(self.piece)
        }
        return {key: tensor for key, tensor in own.items() if key in cuts or not self.piece}, cuts


WHOLE = StatePieces()


def part_of(path: Path, names: frozenset[str], pieces: StatePieces = WHOLE) -> dict[str, Tensor]:
    """Of a checkpoint of the whole what a stage with these `names` takes over by `TrainingState.take`.

    Of tensors that are cut it has its `pieces`. Raises DataLossError for a file that is no checkpoint.
    """
    try:
        tensors = read_tensors(path, lambda key: key == COUNTERS or name_in(key) in names, pieces.of_entry)
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
    cuts: Mapping[str, TensorCut] = MappingProxyType({}),
) -> None:
    """Writes the tensors of all workers, and those that the `writer` adds, into a file of that rank's.

    All call it together; of a stage with several workers one has tensors. Those of `cuts` are pieces, which
    come from several ranks, in their order. Raises what `StageLinks.receive` does, OSError when there is no
    room.
    """
    failure: OSError | None = None
    total_bytes = sum(row[0] for row in links.gather([sum(tensor.nbytes for tensor in own.values())]))
    with links.patient(int(total_bytes)):
        if links.rank != writer:
            _send_part(links, own, cuts, writer)
            links.receive(writer)  # who left before all was received would take the rest of its part along
        else:
            failure = _write_parts(links, path, {**own, **added}, cuts, metadata)
            for rank in _others(links):
                links.send(rank, torch.ones(1))
            links.flush()
    if failure is not None:
        raise failure


def _others(links: StageLinks) -> list[int]:
    return [rank for rank in range(links.workers) if rank != links.rank]


def _send_part(
    links: StageLinks, own: Mapping[str, Tensor], cuts: Mapping[str, TensorCut], writer: int
) -> None:
    told = _entries(own, cuts)
    text = json.dumps([[entry.name, entry.dtype, list(entry.shape), _told(cut)] for entry, cut in told])
    links.send(writer, text_tensor(text))
    for entry, _ in told:
        links.send(writer, own[entry.name])
    links.flush()


def _entries(
    own: Mapping[str, Tensor], cuts: Mapping[str, TensorCut]
) -> list[tuple[TensorEntry, TensorCut | None]]:
    """The tensors as they are when whole, in the order of a file, and how those here are cut."""
    found = {entry_of(name, tensor): cuts.get(name) for name, tensor in own.items()}
    whole = {replace(entry, shape=cut.shape) if cut else entry: cut for entry, cut in found.items()}
    return [(entry, whole[entry]) for entry in in_file_order(whole)]


def _told(cut: TensorCut | None) -> dict[str, Any] | None:
    return None if cut is None else asdict(cut)


def _heard(told: Mapping[str, Any] | None) -> TensorCut | None:
    return None if told is None else TensorCut(**{**told, "shape": tuple(told["shape"])})


def _write_parts(
    links: StageLinks,
    path: Path,
    here: Mapping[str, Tensor],
    own_cuts: Mapping[str, TensorCut],
    metadata: Mapping[str, str],
) -> OSError | None:
    """What went wrong with the file; all parts are received nevertheless, as they are on their way."""
    sources: dict[TensorEntry, list[int]] = {}
    cuts: dict[TensorEntry, TensorCut | None] = {}
    for rank in range(links.workers):
        told = _entries(here, own_cuts) if rank == links.rank else _entries_of(links, rank)
        for entry, cut in told:
            sources.setdefault(entry, []).append(rank)
            cuts[entry] = cut
    ordered = in_file_order(sources)
    file = TensorFile(path, ordered, metadata)
    try:
        failure = _failure_of(file.begin)
        for entry in ordered:
            parts = [
                here[entry.name] if rank == links.rank else links.receive(rank).tensor
                for rank in sources[entry]
            ]
            cut = cuts[entry]
            whole = parts[0] if cut is None else cut.whole([part.cpu() for part in parts])
            failure = failure or _failure_of(partial(file.write, whole))
    finally:
        closing = _failure_of(file.end)
    return failure or closing


def _entries_of(links: StageLinks, rank: int) -> list[tuple[TensorEntry, TensorCut | None]]:
    told = json.loads(bytes(links.receive(rank).tensor.tolist()))
    return [(TensorEntry(name, dtype, tuple(shape)), _heard(cut)) for name, dtype, shape, cut in told]


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
