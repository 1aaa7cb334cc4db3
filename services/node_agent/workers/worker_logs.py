"""What workers print: a file each, appended to by the worker itself and kept short by the agent.

A worker's file may grow to half its limit; then its content moves to FILE.1 (the half before) and the file
is emptied in place, because the worker holds it open. What was there before is lost, and FILE.cut says so.
"""

import os
import shutil
import threading
from collections.abc import Collection
from pathlib import Path

from peerloom.artifacts.disk import disk_errors
from peerloom.errors import NotFoundError

_LINE_LIMIT = 16 * 1024


class LogFolder:
    """The logs of the last `jobs_kept` jobs, at most `limit_bytes` a worker. Every method may block."""

    def __init__(self, folder: Path, limit_bytes: int, jobs_kept: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._jobs_kept = jobs_kept
        self._lock = threading.Lock()  # nobody reads while a file is emptied

    def prepare(self, job_id: str, worker_id: str, running_jobs: Collection[str]) -> Path:
        """The file for a new worker; forgets the oldest jobs that don't run."""
        with disk_errors(self._folder):
            (self._folder / job_id).mkdir(parents=True, exist_ok=True)
            os.utime(self._folder / job_id)
            jobs = sorted(self._folder.iterdir(), key=lambda job: job.stat().st_mtime_ns)
            ended = [job for job in jobs if job.name not in running_jobs and job.name != job_id]
            for job in ended[: max(0, len(jobs) - self._jobs_kept)]:
                shutil.rmtree(job, ignore_errors=True)
            path = self._folder / job_id / f"{worker_id}.log"
            path.touch()
        return path

    def trim(self, path: Path) -> None:
        """Keeps one worker's output within the limit."""
        with self._lock, disk_errors(self._folder):
            if path.stat().st_size <= self._limit_bytes // 2:
                return
            older = Path(f"{path}.1")
            if older.exists():
                Path(f"{path}.cut").touch()
            shutil.copyfile(path, f"{path}.part")
            os.replace(f"{path}.part", older)
            os.truncate(path, 0)

    def read(self, job_id: str, tail_lines: int) -> "JobReader":
        """A reader of all the job's output. Raises NotFoundError when none is kept."""
        folder = self._folder / job_id
        if not folder.is_dir():
            known = [job.name for job in self._folder.iterdir()] if self._folder.is_dir() else []
            raise NotFoundError.of_name("job log", job_id, known)
        return JobReader(folder, tail_lines, self._limit_bytes, self._lock)


class JobReader:
    """Reads what a job's workers have printed since the last call; workers may join meanwhile."""

    def __init__(self, folder: Path, tail_lines: int, limit_bytes: int, lock: threading.Lock) -> None:
        self._folder = folder
        self._tail_lines = tail_lines
        self._limit_bytes = limit_bytes
        self._lock = lock
        self._readers: dict[str, _FileReader] = {}

    def read_new(self, *, last: bool) -> list[tuple[str, str]]:
        """New lines as (worker id, line), worker by worker; with `last` also one that has no end yet."""
        found = []
        for path in sorted(self._folder.glob("*.log")):
            first = path.stem not in self._readers
            reader = self._readers.setdefault(path.stem, _FileReader(path))
            with self._lock, disk_errors(self._folder):
                lines = reader.read_new(last=last)
            if first and Path(f"{path}.cut").exists():
                cut = f"[earlier output was cut: at most {self._limit_bytes:,} bytes are kept]"
                lines = [cut, *lines] if not self._tail_lines else lines
            if first and self._tail_lines:
                lines = lines[-self._tail_lines :]
            found += [(path.stem, line) for line in lines]
        return found


class _FileReader:
    """Where reading one file has come to, over its being emptied."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._older = Path(f"{path}.1")
        self._older_version = 0
        self._offset = 0
        self._rest = b""

    def read_new(self, *, last: bool) -> list[str]:
        data = self._rest + self._read_bytes()
        *lines, self._rest = data.split(b"\n")
        if (last or len(self._rest) > _LINE_LIMIT) and self._rest:
            lines, self._rest = [*lines, self._rest], b""
        return [line[:_LINE_LIMIT].decode(errors="replace").rstrip("\r") for line in lines]

    def _read_bytes(self) -> bytes:
        version = self._older.stat().st_mtime_ns if self._older.exists() else 0
        data = b""
        if version != self._older_version:
            data, self._offset = _read_from(self._older, self._offset), 0
            self._older_version = version
        data += (new := _read_from(self._path, self._offset))
        self._offset += len(new)
        return data


def _read_from(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read()
