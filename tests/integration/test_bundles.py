"""A folder as one file and back: the same bytes for the same files, and nothing outside the folder."""

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from peerloom.artifacts import bundles
from peerloom.artifacts.bundles import is_bundle, pack, unpack
from peerloom.errors import DataLossError, InvalidArgumentError, UnavailableError


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


def written(bundle: Path, *members: tarfile.TarInfo, content: bytes = b"evil") -> Path:
    """A tar of these members, each with the content if it is a file."""
    with tarfile.open(bundle, "w") as tar:
        for member in members:
            member.size = len(content) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return bundle


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, target, 0o6777
    return made


@pytest.mark.parametrize(
    ("name", "flaw"),
    [
        ("../outside", "reaches outside"),
        ("a/../../outside", "reaches outside"),
        ("/tmp/outside-peerloom", "reaches outside"),
        ("a//b", "empty part"),
        ("a/\x1b[2J", "control character"),
        ("a\nb", "control character"),
        ("x" * 256, "longer than"),
        ("/".join(["x" * 200] * 6), "longer than"),
        ("/".join("x" * 33), "more than 32 parts"),
    ],
)
def test_a_name_that_reaches_outside_or_cannot_be_trusted_is_refused(
    tmp_path: Path, name: str, flaw: str
) -> None:
    bundle, inner = written(tmp_path / "bundle.tar", member(name)), tmp_path / "a"
    inner.mkdir()
    with pytest.raises(DataLossError, match=f"can't be unpacked: .*{flaw}"):
        unpack(bundle, inner / "target")
    assert [path.name for path in inner.rglob("*")] == ["target"]
    assert not Path("/tmp/outside-peerloom").exists()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.GNUTYPE_SPARSE]
)
def test_nothing_but_files_and_folders_is_taken(tmp_path: Path, kind: bytes) -> None:
    """Also no link that stays inside: the filter that judged links could be bypassed (CVE-2025-4517)."""
    bundle = written(tmp_path / "bundle.tar", member("first"), member("second", kind, "first"))
    with pytest.raises(DataLossError, match="neither a regular file nor a folder"):
        unpack(bundle, tmp_path / "target")


def test_a_deep_chain_of_links_writes_nothing_outside(tmp_path: Path) -> None:
    """CVE-2025-4517: beyond PATH_MAX realpath() stops resolving, and a link seemed to stay inside."""
    part, steps, members = "d" * 247, "abcdefghijklmnop", []
    path = ""
    for step in steps:
        members.append(member(f"{path}{part}", tarfile.DIRTYPE))
        members.append(member(f"{path}{step}", tarfile.SYMTYPE, part))
        path += f"{step}/"
    long_link = "/".join([*steps, "l" * 254])
    members.append(member(long_link, tarfile.SYMTYPE, "../" * len(steps)))
    members.append(member("escape", tarfile.SYMTYPE, f"{long_link}/.."))
    members.append(member("escape/outside"))
    (tmp_path / "inner").mkdir()
    with pytest.raises(DataLossError, match="can't be unpacked"):
        unpack(written(tmp_path / "bundle.tar", *members), tmp_path / "inner" / "target")
    assert not (tmp_path / "outside").exists()
    assert not (tmp_path / "inner" / "outside").exists()


@pytest.mark.parametrize(
    "names", [("a", "a"), ("a", "./a"), ("a", "a/b"), ("a/b", "a")], ids=lambda names: "+".join(names)
)
def test_a_name_is_written_once(tmp_path: Path, names: tuple[str, ...]) -> None:
    bundle = written(tmp_path / "bundle.tar", *map(member, names))
    with pytest.raises(DataLossError, match=r"twice|as a file and as a folder"):
        unpack(bundle, tmp_path / "target")


def test_what_is_written_belongs_to_this_user_alone(tmp_path: Path) -> None:
    """Whatever modes the bundle asks for: its members say 6777."""
    bundle = written(
        tmp_path / "bundle.tar", member(".", tarfile.DIRTYPE), member("./a", tarfile.DIRTYPE), member("./a/b")
    )
    unpack(bundle, tmp_path / "target")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "target").rglob("*")}
    assert modes == {"a": 0o700, "b": 0o600}
    assert stat.S_IMODE((tmp_path / "target").stat().st_mode) == 0o700


def test_nothing_is_unpacked_over_what_is_there(tmp_path: Path) -> None:
    bundle = written(tmp_path / "bundle.tar", member("a"))
    (tmp_path / "target").symlink_to(tmp_path)
    with pytest.raises(UnavailableError):
        unpack(bundle, tmp_path / "target")
    assert not (tmp_path / "a").exists()


def test_a_header_cannot_claim_more_than_there_is(tmp_path: Path) -> None:
    bundle = written(tmp_path / "bundle.tar", member("a"))
    liar = tarfile.TarInfo("a")
    liar.size = 1 << 40
    bundle.write_bytes(liar.tobuf() + b"few bytes".ljust(512, b"\0"))
    with pytest.raises(DataLossError, match="claims 1,099,511,627,776 bytes, more than the bundle has"):
        unpack(bundle, tmp_path / "target")
    assert not (tmp_path / "target" / "a").exists()


def test_no_header_takes_up_the_memory(tmp_path: Path) -> None:
    """A name of 4 GiB, as a hole in the file: tarfile would read it whole."""
    name = tarfile.TarInfo("././@LongLink")
    name.type, name.size = tarfile.GNUTYPE_LONGNAME, 1 << 32
    bundle = tmp_path / "bundle.tar"
    with bundle.open("wb") as file:
        file.write(name.tobuf(tarfile.GNU_FORMAT))
        file.truncate(1 << 33)
    assert not is_bundle(bundle)
    with pytest.raises(DataLossError, match="headers of a member need more than"):
        unpack(bundle, tmp_path / "target")


def test_there_are_at_most_so_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "MEMBERS_LIMIT", 2)
    with pytest.raises(DataLossError, match="more than 2 files"):
        unpack(written(tmp_path / "bundle.tar", *map(member, "abc")), tmp_path / "files")
    folders = [member(name, tarfile.DIRTYPE) for name in "abc"]
    with pytest.raises(DataLossError, match="more than 2 folders"):
        unpack(written(tmp_path / "bundle.tar", *folders), tmp_path / "folders")
    for name in "abc":
        (tmp_path / "source" / name).mkdir(parents=True)
        (tmp_path / "source" / name / "file").touch()
    with pytest.raises(InvalidArgumentError, match="2 files at most"):
        pack(tmp_path / "source", tmp_path / "bundle.tar")


def test_a_name_that_cannot_be_unpacked_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "bell\a").touch()
    with pytest.raises(InvalidArgumentError, match="its name has a control character"):
        pack(tmp_path / "source", tmp_path / "bundle.tar")


def test_a_file_that_is_no_bundle_is_told_from_one(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no tar")
    assert not is_bundle(tmp_path / "text")
    with tarfile.open(tmp_path / "packed.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "text", "text")
    assert not is_bundle(tmp_path / "packed.tar.gz")
    with pytest.raises(DataLossError, match="can't be unpacked"):
        unpack(tmp_path / "text", tmp_path / "target")


def test_a_folder_with_a_hole_of_terabytes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    with (tmp_path / "source" / "sparse").open("wb") as file:
        file.truncate((1 << 40) + 1)
    with pytest.raises(InvalidArgumentError, match="1,099,511,627,776 bytes at most"):
        pack(tmp_path / "source", tmp_path / "bundle.tar")
