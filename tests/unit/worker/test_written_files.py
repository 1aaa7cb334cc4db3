"""What ranks write into folders of their own, as a disk that they share would have it."""

from pathlib import Path

from peerloom.worker.script.written_files import changed, is_complete, together

ZERO, ONE, TWO = Path("/zero"), Path("/one"), Path("/two")


def placed(folder: Path, *names: str) -> dict[str, Path]:
    """Files of these names below a folder."""
    return {name: folder / name for name in names}


def test_what_was_written_since_has_another_size_or_time() -> None:
    began = {"train.py": (10, 1), "log": (10, 1), "gone": (5, 1)}
    assert changed({"train.py": (10, 1), "log": (10, 2), "new": (1, 1)}, began) == {"log", "new"}


def test_of_one_name_the_lowest_rank_counts_of_those_who_wrote_it() -> None:
    own = placed(ZERO, "train.py", "log", "part")
    others = [placed(ONE, "log", "part"), placed(TWO, "log", "part", "mine")]
    assert together(own, {"log"}, others) == {
        "train.py": ZERO / "train.py",
        "log": ZERO / "log",
        "part": ONE / "part",  # rank 0's is the one that all began with
        "mine": TWO / "mine",
    }


def test_a_folder_that_rank_0_has_removed_does_not_come_back() -> None:
    own = placed(ZERO, "new/.metadata", "new/__0_0.distcp")
    others = [placed(ONE, "old/__1_0.distcp", "new/__1_0.distcp")]
    assert set(together(own, set(own), others)) == {*own, "new/__1_0.distcp"}


def test_a_checkpoint_is_complete_with_all_parts_that_its_metadata_name(tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(b"\x80\x04\x8c\x0c__0_0.distcp\x94\x8c\x0d__12_0.distcp\x94.")
    metadata, parts = {"a/.metadata": tmp_path / ".metadata"}, placed(ONE, "a/__0_0.distcp")
    assert not is_complete(metadata)
    assert not is_complete(metadata | parts | placed(ONE, "b/__12_0.distcp"))
    assert is_complete(metadata | parts | placed(TWO, "a/__12_0.distcp"))
    assert is_complete(parts), "without metadata it is none, and nobody loads it"
