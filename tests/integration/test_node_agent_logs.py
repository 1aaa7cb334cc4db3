"""What workers print stays within its limit, is read in order, and never silently loses its beginning."""

from pathlib import Path

import pytest

from peerloom.errors import NotFoundError
from peerloom.services.node_agent.workers.worker_logs import LogFolder

LIMIT_BYTES = 200


@pytest.fixture
def logs(tmp_path: Path) -> LogFolder:
    return LogFolder(tmp_path, LIMIT_BYTES, jobs_kept=2)


def write(path: Path, *lines: str) -> None:
    """As a worker does: it appends to the file it holds open."""
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def read_all(logs: LogFolder, tail_lines: int = 0) -> list[str]:
    return [line for _, line in logs.read("job-1", tail_lines).read_new(last=True)]


def test_a_file_that_was_emptied_reads_on_without_a_gap(logs: LogFolder) -> None:
    path = logs.prepare("job-1", "a", set())
    reader = logs.read("job-1", 0)
    written = [f"line {number:02} {'x' * 31}" for number in range(12)]
    seen = []
    for start in range(0, 12, 3):
        write(path, *written[start : start + 3])
        if start:
            seen += reader.read_new(last=False)
        logs.trim(path)
    seen += reader.read_new(last=True)
    assert [line for _, line in seen] == written


def test_what_was_lost_is_said_and_the_rest_is_the_newest(logs: LogFolder) -> None:
    path = logs.prepare("job-1", "a", set())
    for number in range(10):
        write(path, f"{number} {'x' * 60}", f"{number} again")
        logs.trim(path)
    lines = read_all(logs)
    assert lines[0] == "[earlier output was cut: at most 200 bytes are kept]"
    assert lines[-1] == "9 again"
    assert len(lines) < 20
    assert sum(kept.stat().st_size for kept in path.parent.iterdir()) <= LIMIT_BYTES
    assert read_all(logs, tail_lines=2) == [f"9 {'x' * 60}", "9 again"]


def test_a_line_is_told_when_it_has_ended_or_nothing_more_comes(logs: LogFolder) -> None:
    path = logs.prepare("job-1", "a", set())
    reader = logs.read("job-1", 0)
    path.write_text("whole\nhalf")
    assert reader.read_new(last=False) == [("a", "whole")]
    with path.open("a") as file:
        file.write(" a line")
    assert reader.read_new(last=True) == [("a", "half a line")]


def test_workers_that_join_are_read_too(logs: LogFolder) -> None:
    write(logs.prepare("job-1", "a", set()), "from a")
    reader = logs.read("job-1", 0)
    assert reader.read_new(last=False) == [("a", "from a")]
    write(logs.prepare("job-1", "b", set()), "from b")
    assert reader.read_new(last=False) == [("b", "from b")]


def test_bytes_that_are_no_text_and_endless_lines_are_passed_on_as_well_as_possible(logs: LogFolder) -> None:
    path = logs.prepare("job-1", "a", set())
    path.write_bytes(b"\xff\r\n" + b"y" * 40_000 + b"\n")
    lines = read_all(logs)
    assert lines[0] == "�"
    assert lines[1] == "y" * 16 * 1024


def test_the_oldest_jobs_are_forgotten_but_not_the_running_ones(logs: LogFolder, tmp_path: Path) -> None:
    for number in range(1, 5):
        logs.prepare(f"job-{number}", "a", {"job-1"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job-1", "job-4"]
    with pytest.raises(NotFoundError, match="Did you mean"):
        logs.read("job-2", 0)
