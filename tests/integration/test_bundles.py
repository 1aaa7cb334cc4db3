"""A folder as one file and back: the same bytes for the same files, and nothing outside the folder."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from peerloom.artifacts.bundles import is_bundle, pack, unpack
from peerloom.errors import DataLossError, InvalidArgumentError


def filled(folder: Path) -> Path:
    (folder / "package" / "__pycache__").mkdir(parents=True)
    (folder / "package" / "module.py").write_text("x = 1\n")
    (folder / "package" / "__pycache__" / "module.pyc").write_bytes(b"old")
    (folder / ".hidden").write_text("secret")
    (folder / "data.bin").write_bytes(bytes(range(256)))
    return folder


def test_what_went_in_comes_out_but_for_hidden_and_compiled_files(tmp_path: Path) -> None:
    pack(filled(tmp_path / "source"), tmp_path / "bundle.tar")
    assert is_bundle(tmp_path / "bundle.tar")
    target = tmp_path / "target"
    target.mkdir()
    unpack(tmp_path / "bundle.tar", target)
    found = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    assert found == {"data.bin", "package/module.py"}
    assert (target / "data.bin").read_bytes() == bytes(range(256))


def test_the_same_files_give_the_same_bytes_whenever_they_were_written(tmp_path: Path) -> None:
    """Else each put of an unchanged folder would be a new artifact."""
    for name in ("one", "two"):
        pack(filled(tmp_path / name), tmp_path / f"{name}.tar")
        os.utime(tmp_path / "one" / "data.bin", (1, 1))
    pack(tmp_path / "one", tmp_path / "again.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "again.tar").read_bytes()


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidArgumentError, match="a folder with files in it"):
        pack(tmp_path / "empty", tmp_path / "bundle.tar")


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside-peerloom"])
def test_a_bundle_that_reaches_outside_leaves_nothing_there(tmp_path: Path, name: str) -> None:
    bundle, target = tmp_path / "bundle.tar", tmp_path / "a" / "target"
    target.mkdir(parents=True)
    with tarfile.open(bundle, "w") as tar:
        member = tarfile.TarInfo(name)
        member.size = 4
        tar.addfile(member, io.BytesIO(b"evil"))
    if name.startswith("/"):
        unpack(bundle, target)  # an absolute name is taken as one inside
    else:
        with pytest.raises(DataLossError, match="can't be unpacked"):
            unpack(bundle, target)
    assert not (tmp_path / "a" / "outside").exists()
    assert not Path("/tmp/outside-peerloom").exists()


def test_a_file_that_is_no_bundle_is_told_from_one(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no tar")
    assert not is_bundle(tmp_path / "text")
    with tarfile.open(tmp_path / "packed.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "text", "text")
    assert not is_bundle(tmp_path / "packed.tar.gz")
    with pytest.raises(DataLossError, match="can't be unpacked"):
        unpack(tmp_path / "text", tmp_path)
