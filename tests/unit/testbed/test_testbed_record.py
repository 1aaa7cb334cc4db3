"""The record of what was made: who holds it, what it survives, and whose things are whose."""

import os
from pathlib import Path

import pytest

from peerloom.errors import FailedPreconditionError, NotFoundError
from peerloom.testbed import names, note, testbed_record
from peerloom.testbed.backends import Stats
from peerloom.testbed.names import Names
from peerloom.testbed.testbed_record import Entry, Record, dead_records, is_up, read_entries, start_time_of
from peerloom.testbed.watch import LINE_LIMIT, SampleFile


@pytest.fixture(autouse=True)
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Records of this test alone."""
    for module in (names, testbed_record):
        monkeypatch.setattr(module, "RUN_FOLDER", tmp_path / "run")
    return tmp_path / "run"


def test_names_are_those_of_the_state_folder_each_time_and_no_others(tmp_path: Path) -> None:
    first, second = Names.of_state(tmp_path / "a"), Names.of_state(tmp_path / "b")
    assert first == Names.of_state(tmp_path / "a")
    assert {first.lab, first.host("host-1")}.isdisjoint({second.lab, second.host("host-1")})
    assert len(str(Names("0" * 8).run_folder / "registry.sock").removeprefix(str(tmp_path))) < 60


def test_what_was_written_is_read_by_others() -> None:
    its = Names("11111111")
    held = Record.take(its)
    held.write("namespace", its.lab)
    held.write("process", "registry", os.getpid())
    assert read_entries(its) == [
        Entry("namespace", its.lab),
        Entry("process", "registry", os.getpid(), start_time_of(os.getpid())),
    ]
    held.close()


def test_a_last_line_that_was_cut_off_is_passed_over(run_folder: Path) -> None:
    its = Names("11111111")
    held = Record.take(its)
    held.write("namespace", its.lab)
    with (run_folder / "11111111" / "record.jsonl").open("a") as file:
        file.write('{"kind": "names')
    assert read_entries(its) == [Entry("namespace", its.lab)]
    held.close()


def test_a_record_has_one_holder_and_a_second_is_told_whom_to_stop() -> None:
    its = Names("11111111")
    held = Record.take(its)
    assert is_up(its)
    with pytest.raises(FailedPreconditionError, match="peerloom testbed down"):
        Record.take(its)
    held.close()
    assert not is_up(its)


def test_only_records_without_a_holder_are_dead() -> None:
    living, dead = Record.take(Names("11111111")), Record.take(Names("22222222"))
    dead.close()
    found = list(dead_records())
    assert [one.names.token for one in found] == ["22222222"]
    for one in (living, *found):
        one.close()


def test_a_forgotten_record_is_gone() -> None:
    its = Names("11111111")
    held = Record.take(its)
    held.write("namespace", its.lab)
    held.forget()
    held.close()
    assert read_entries(its) == []
    assert list(dead_records()) == []


def test_a_process_that_has_ended_has_no_start_time() -> None:
    assert start_time_of(os.getpid()) > 0
    assert start_time_of(2**22 + 1) == 0


def test_a_note_counts_only_while_its_testbed_is_up(tmp_path: Path) -> None:
    text = "version: 1\nhosts:\n  - {name: host-1, node: 1}\n"
    note.write_note(tmp_path, note.Note("a.yaml", text, "netem", "container", 7))
    with pytest.raises(NotFoundError, match="peerloom testbed up"):
        note.read_note(tmp_path)
    held = Record.take(Names.of_state(tmp_path))
    plan = note.read_note(tmp_path).plan()
    assert (plan.backend, plan.hosts[0].isolation) == ("netem", "container")
    held.close()


def test_the_file_of_samples_never_grows_beyond_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"
    samples = SampleFile(path)
    for second in range(3 * LINE_LIMIT):
        samples.add(Stats(float(second), None, None, None, ()))
    lines = path.read_text().splitlines()
    assert LINE_LIMIT / 2 <= len(lines) < LINE_LIMIT
    assert '"wall_s":0.0' in lines[0]
