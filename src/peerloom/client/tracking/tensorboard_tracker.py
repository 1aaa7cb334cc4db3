"""TensorBoard: event files below DIR/JOB, which nothing but TensorBoard's own package writes and reads.

Each event of the job is one record, which carries the event's sequence number where a record names its
writer, so that files themselves say how far they go. Whoever takes a run up begins another file beside the
last, for that may end within a record.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from peerloom.client.tracking.track_entries import TrackEntry, parameters_of
from peerloom.client.types import Job
from peerloom.errors import UnavailableError
from peerloom.kit.files import open_for_update, try_lock

if TYPE_CHECKING:
    from tensorboard.summary.writer.record_writer import RecordWriter

_WRITER = "peerloom event "
_PARAMETERS = "job"
LOCK_FILE = "peerloom.lock"


class TensorboardTracker:
    """Writes to `folder`/JOB; one process at a time."""

    def __init__(self, folder: Path) -> None:
        self._root = folder
        self._lock: int | None = None
        self._file: BinaryIO | None = None
        self._records: RecordWriter | None = None
        self._folder = folder
        self._table = ""

    def begin(self, job: Job) -> int:
        """Locks the job's folder and reads how far it goes."""
        self._folder = self._root / job.id
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = open_for_update(self._folder / LOCK_FILE, 0o666)
        if not try_lock(self._lock):
            raise UnavailableError(
                f"another process tracks this job in {self._folder}: end that one, or give another folder",
                reason="TRACKER_TAKEN",
            )
        held = 0
        for event in self._held_events():
            held = max(held, _sequence_of(event))
            self._table = _table_in(event) or self._table
        return held

    def write(self, job: Job, entries: Sequence[TrackEntry], chronicle: str) -> None:
        """Adds one record for each entry."""
        self._write_parameters(job, entries[0])
        for entry in entries:
            self._write_record(entry)
        self._flush()

    def finish(self, job: Job) -> None:
        """Nothing is left to say: the state that the job ended in was an event."""

    def release(self) -> None:
        """Closes the file, and lets others write."""
        file, lock = self._file, self._lock
        self._file = self._records = self._lock = None
        try:
            if file is not None:
                file.close()
        finally:
            if lock is not None:
                os.close(lock)

    def _held_events(self) -> Iterator[Any]:
        from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

        for path in self._files():
            yield from LegacyEventFileLoader(str(path)).Load()

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("events.out.tfevents.*.peerloom"))

    def _write_parameters(self, job: Job, entry: TrackEntry) -> None:
        """Once, and again when the first worker has filled in what was left open."""
        rows = [f"| {_cell(name)} | {_cell(value)} |" for name, value in parameters_of(job).items()]
        table = "\n".join(["| parameter | value |", "| --- | --- |", *rows])
        if table != self._table:
            self._append(entry.time_s, 0, 0, {}, {_PARAMETERS: table})
            self._table = table

    def _write_record(self, entry: TrackEntry) -> None:
        texts = {f"events/{entry.kind}": entry.line} if entry.line else {}
        self._append(entry.time_s, entry.step, entry.sequence, entry.figures, texts)

    def _append(
        self, time_s: float, step: int, sequence: int, figures: dict[str, float], texts: dict[str, str]
    ) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2

        values = [summary_pb2.Summary.Value(tag=tag, simple_value=value) for tag, value in figures.items()]
        event = event_pb2.Event(
            wall_time=time_s,
            step=step,
            summary=summary_pb2.Summary(value=[*values, *(_text(*one) for one in texts.items())]),
            source_metadata=event_pb2.SourceMetadata(writer=f"{_WRITER}{sequence}"),
        )
        self._opened(time_s).write(event.SerializeToString())

    def _opened(self, time_s: float) -> "RecordWriter":
        """The file, made when there is something to write."""
        if self._records is None:
            from tensorboard.compat.proto import event_pb2
            from tensorboard.summary.writer.record_writer import RecordWriter

            # TensorBoard reads a folder's files by name, one after the other.
            self._file = (self._folder / f"events.out.tfevents.{len(self._files()):010d}.peerloom").open("xb")
            self._records = RecordWriter(self._file)
            first = event_pb2.Event(wall_time=time_s, file_version="brain.Event:2")
            self._records.write(first.SerializeToString())
        return self._records

    def _flush(self) -> None:
        if self._file is not None:
            self._file.flush()


def _sequence_of(event: Any) -> int:
    writer = event.source_metadata.writer
    return int(writer.removeprefix(_WRITER)) if writer.startswith(_WRITER) else 0


def _table_in(event: Any) -> str:
    tables = [value.tensor.string_val for value in event.summary.value if value.tag == _PARAMETERS]
    return str(tables[-1][0].decode()) if tables and tables[-1] else ""


def _text(tag: str, text: str) -> Any:
    from tensorboard.plugins.text.summary_v2 import text_pb

    return text_pb(tag, text).value[0]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
