"""Trainings read artifacts and what the node's owner lends, and no other file of the node."""

from pathlib import Path

import pytest

from peerloom.errors import PermissionDeniedError
from peerloom.worker.assignment import Assignment, Work
from peerloom.worker.data_roots import foreign_paths, inside, lent_path, path_arguments
from peerloom.worker.inputs import Inputs
from peerloom.worker.tasks.idx import find_file
from peerloom.worker.tasks.text import read_text

ARTIFACT = "artifact:" + "d" * 64


@pytest.fixture
def lent(tmp_path: Path) -> Path:
    """A lent folder beside a secret, with links to it and to a file of its own."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.txt").write_text("of the owner")
    folder = tmp_path / "lent"
    (folder / "texts").mkdir(parents=True)
    (folder / "texts" / "a.txt").write_text("for all")
    (folder / "inner").symlink_to(folder / "texts")
    (folder / "outer").symlink_to(tmp_path / "secret")
    (tmp_path / "lent-not").mkdir()
    return folder


def test_only_what_lies_below_a_root_is_lent_with_all_links_followed(lent: Path) -> None:
    roots = [str(lent)]
    assert lent_path(str(lent), roots) == lent
    assert lent_path(str(lent / "texts" / "a.txt"), roots) == lent / "texts" / "a.txt"
    assert lent_path(str(lent / "inner"), roots) == lent / "texts"
    assert lent_path(str(lent / "not yet there"), roots) == lent / "not yet there"
    for other in (
        lent / "outer",
        lent / "outer" / "key.txt",
        lent / ".." / "secret",
        lent.parent / "lent-not",
    ):
        assert lent_path(str(other), roots) is None, other
    for text in ("", ".", "~", "~nobody-of-that-name/x", "a\0b", "/etc/shadow"):
        assert lent_path(text, roots) is None, text
    assert lent_path(str(lent), []) is None
    assert lent_path(str(lent), ["/nowhere", str(lent.parent / "lent" / "outer" / ".." / "lent")]) == lent


@pytest.mark.parametrize(
    ("task", "arguments", "paths"),
    [
        ("mnist", {"data": "set", "test_fraction": "/0.1"}, {"data": "set"}),
        ("mnist", {"data": ""}, {"data": ""}),
        ("mnist", {"data": ARTIFACT}, {}),
        ("cifar10", {"data": "/data"}, {"data": "/data"}),
        ("text", {"data": "", "context": "8"}, {}),
        ("text", {"data": "~/x"}, {"data": "~/x"}),
        ("digits", {}, {}),
        ("own:Task", {"a": "/x", "b": "~/x", "c": "x/../y", "d": "file:///x"}, "abcd"),
        ("own:Task", {"a": "0.1", "b": "adam/cosine", "c": "", "d": ARTIFACT, "e": "not-there"}, ""),
        ("own:Task", {"a": "pyproject.toml", "b": "a\0b"}, "a"),
    ],
)
def test_which_arguments_name_files(
    task: str, arguments: dict[str, str], paths: dict[str, str] | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an own task nobody knows, so all that reads like a path is one."""
    monkeypatch.chdir(Path(__file__).parents[2])
    expected = {name: arguments[name] for name in paths} if isinstance(paths, str) else paths
    assert path_arguments(task, arguments) == expected
    assert foreign_paths(task, arguments, []) == expected


def bring(lent: Path, value: str) -> dict[str, str]:
    work = Work("127.0.0.1:9", "text", {"data": value, "context": "8"})
    told = Assignment("w", "j", work, "", 0, "cpu", 0, "", 1, "", "5" * 64, data_roots=(str(lent),))
    return dict(Inputs(told).bring())


def test_a_worker_looks_again_and_reads_where_the_links_lead(lent: Path) -> None:
    """The agent looked when it took the work; a link may point elsewhere now."""
    assert bring(lent, str(lent / "inner")) == {"data": str(lent / "texts"), "context": "8"}
    with pytest.raises(PermissionDeniedError, match="isn't lent by this node's owner"):
        bring(lent, str(lent / "outer"))


def test_a_link_in_a_lent_folder_leads_nowhere_else(lent: Path) -> None:
    (lent / "texts" / "b.txt").symlink_to(lent.parent / "secret" / "key.txt")
    with pytest.raises(PermissionDeniedError, match=r"b.txt is a link to .*key.txt, outside of the folder"):
        read_text(lent / "texts")
    (lent / "train-images-idx3-ubyte").symlink_to(lent.parent / "secret" / "key.txt")
    with pytest.raises(PermissionDeniedError, match="outside of the folder"):
        find_file(lent, ["train-images-idx3-ubyte"])
    assert inside(lent, lent / "inner" / "a.txt") == lent / "inner" / "a.txt"
