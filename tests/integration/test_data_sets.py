"""Aim: the built-in tasks read the official formats, and every file that isn't right is refused by name.

Method: the tests write small files of the real formats themselves.
"""

import gzip
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from peerloom.errors import DataLossError, FailedPreconditionError, InvalidArgumentError, NotFoundError
from peerloom.worker.task import Split, Task, load_data, load_task, sample_losses
from peerloom.worker.tasks.cifar10 import RECORD_BYTES, TEST_FILES, TRAIN_FILES
from peerloom.worker.tasks.idx import read_idx, read_images, read_labels

OFFICIAL = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "t10k": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def idx(values: npt.NDArray[np.uint8]) -> bytes:
    """The IDX file of an array of bytes."""
    return bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def images(count: int) -> npt.NDArray[np.uint8]:
    """Image i is i + 1 everywhere."""
    return np.repeat(np.arange(1, count + 1, dtype=np.uint8), 28 * 28).reshape(count, 28, 28)


def labels(count: int) -> npt.NDArray[np.uint8]:
    """0 to 9 in turn."""
    return (np.arange(count) % 10).astype(np.uint8)


def write_mnist(folder: Path, part: str, count: int) -> None:
    """The two files of "train" or "t10k"."""
    for name, values in zip(OFFICIAL[part], (images(count), labels(count)), strict=True):
        (folder / name).write_bytes(idx(values))


def write_cifar(folder: Path) -> None:
    """Two records in each file: record r of file f has label f + r, red 10 f + r, green 100, blue 200."""
    for file, name in enumerate(TRAIN_FILES + TEST_FILES):
        records = np.full((2, RECORD_BYTES), 200, dtype=np.uint8)
        for row in range(2):
            records[row, 0] = file + row
            records[row, 1:1025] = 10 * file + row
            records[row, 1025:2049] = 100
        (folder / name).write_bytes(records.tobytes())


def read(name: str, folder: Path, **arguments: str) -> tuple[Task, Split, Split]:
    """The task and its two parts."""
    task = load_task(name, {"data": str(folder), **arguments})
    train, test = load_data(task)
    assert isinstance(train, Split)
    assert isinstance(test, Split)
    return task, train, test


# MNIST


@pytest.mark.parametrize("separator", ["-idx", ".idx"])
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gz"])
def test_the_official_names_are_found(tmp_path: Path, separator: str, compressed: bool) -> None:
    for part, count in (("train", 12), ("t10k", 3)):
        for name, values in zip(OFFICIAL[part], (images(count), labels(count)), strict=True):
            path = tmp_path / (name.replace("-idx", separator) + (".gz" if compressed else ""))
            path.write_bytes(gzip.compress(idx(values)) if compressed else idx(values))
    _, train, test = read("mnist", tmp_path)
    assert train.inputs.shape == (12, 1, 28, 28)
    assert train.targets.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert test.inputs[:, 0, 0, 0].tolist() == [1, 2, 3]


def test_a_batch_of_mnist_is_scaled_by_the_sets_own_constants(tmp_path: Path) -> None:
    """By hand: byte 3 is (3 / 255 - 0.1307) / 0.3081 = -0.386028."""
    write_mnist(tmp_path, "train", 4)
    write_mnist(tmp_path, "t10k", 1)
    task, train, _ = read("mnist", tmp_path)
    inputs, targets = task.batch(train, torch.tensor([2]))
    torch.testing.assert_close(inputs, torch.full((1, 1, 28, 28), -0.386028))
    assert targets.tolist() == [2]


def test_test_files_alone_are_split_when_asked_for(tmp_path: Path) -> None:
    """By hand: of the four samples of each class the first is taken, and those are the first ten."""
    write_mnist(tmp_path, "t10k", 40)
    _, train, test = read("mnist", tmp_path, test_fraction="0.25")
    assert test.inputs[:, 0, 0, 0].tolist() == list(range(1, 11))
    assert test.targets.tolist() == list(range(10))
    assert train.inputs[:, 0, 0, 0].tolist() == list(range(11, 41))


def test_missing_training_files_name_all_that_was_looked_for_and_the_way_out(tmp_path: Path) -> None:
    write_mnist(tmp_path, "t10k", 3)
    with pytest.raises(NotFoundError) as caught:
        read("mnist", tmp_path)
    text = caught.value.message
    plain, dotted = "train-images-idx3-ubyte", "train-images.idx3-ubyte"
    assert f"{plain}, {plain}.gz, {dotted}, {dotted}.gz" in text
    assert str(tmp_path) in text
    assert "test_fraction" in text


def test_a_test_fraction_beside_training_files_is_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path, "train", 3)
    write_mnist(tmp_path, "t10k", 3)
    with pytest.raises(InvalidArgumentError, match="leave it out"):
        read("mnist", tmp_path, test_fraction="0.5")


@pytest.mark.parametrize("fraction", ["0", "1", "-0.1", "nan", "half"])
def test_a_test_fraction_outside_its_limits_is_refused(tmp_path: Path, fraction: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"test_fraction is '{fraction}', but must be .* above 0"):
        load_task("mnist", {"data": str(tmp_path), "test_fraction": fraction})


def test_a_test_fraction_that_leaves_no_test_sample_is_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path, "t10k", 4)
    with pytest.raises(InvalidArgumentError, match="part of 4 samples"):
        read("mnist", tmp_path, test_fraction="0.1")


def test_images_and_labels_of_different_number_are_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path, "train", 5)
    write_mnist(tmp_path, "t10k", 5)
    (tmp_path / OFFICIAL["train"][1]).write_bytes(idx(labels(4)))
    with pytest.raises(DataLossError, match=r"5 images, but .*train-labels-idx1-ubyte 4 labels"):
        read("mnist", tmp_path)


# IDX files


NOT_RIGHT = {
    "empty": (b"", "begins with nothing, expected 00 00 08 03"),
    "labels": (idx(labels(5)), "begins with 00 00 08 01, expected 00 00 08 03"),
    "zip": (b"PK\x03\x04 an archive", "begins with 50 4b 03 04"),
    "floats": (b"\0\0\x0d\x03" + b"\0" * 40, "begins with 00 00 0d 03"),
    "header-cut": (idx(images(2))[:11], "ends in its header after 11 bytes"),
    "truncated": (idx(images(2))[:-1], "holds 1,567 bytes after its header, expected 1,568"),
    "too-long": (idx(images(2)) + b"x", "holds more than 1,568 bytes after its header, expected 1,568"),
    "no-images": (idx(np.zeros((0, 28, 28), np.uint8)), "claims 0 x 28 x 28 bytes, expected 1 to"),
    "absurd-size": (b"\0\0\x08\x03" + b"\xff" * 12, "claims 4294967295 x 4294967295 x 4294967295 bytes"),
    "other-pixels": (
        idx(np.zeros((2, 32, 32), np.uint8)),
        "holds images of 32 x 32 pixels, expected 28 x 28",
    ),
    "gzip-cut": (gzip.compress(idx(images(2)))[:-12], "is damaged: gzip says"),
    "gzip-garbled": (gzip.compress(idx(images(2)))[:10] + b"\xff" * 40, "is damaged: gzip says"),
    "gzip-checksum": (gzip.compress(idx(images(2)))[:-8] + b"\0" * 8, "is damaged: gzip says"),
    "gzip-method": (b"\x1f\x8b\x01 no", "is damaged: gzip says"),
    "gzip-too-long": (gzip.compress(idx(images(2)) + b"x"), "holds more than 1,568 bytes"),
}


@pytest.mark.parametrize(("content", "message"), NOT_RIGHT.values(), ids=NOT_RIGHT)
def test_a_file_that_is_not_right_is_refused_by_name(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "images"
    path.write_bytes(content)
    with pytest.raises(DataLossError) as caught:
        read_images(path, 28, 28)
    assert caught.value.message.startswith(str(path))
    assert message in caught.value.message


def test_labels_outside_the_classes_are_counted_and_the_first_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "labels"
    path.write_bytes(idx(np.array([1, 9, 10, 3, 255], np.uint8)))
    with pytest.raises(DataLossError, match="holds 2 labels outside 0 to 9, the first at 2: 10"):
        read_labels(path, 10)


def test_compression_is_recognised_by_content_not_by_name(tmp_path: Path) -> None:
    path = tmp_path / "labels-idx1-ubyte"
    path.write_bytes(gzip.compress(idx(labels(3))))
    assert read_labels(path, 10).tolist() == [0, 1, 2]


def test_what_the_system_refuses_is_a_failed_precondition(tmp_path: Path) -> None:
    with pytest.raises(FailedPreconditionError, match="can't be read: Is a directory"):
        read_idx(tmp_path, 1)


# CIFAR-10


def test_cifar_files_are_read_in_order_and_by_colour(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    _, train, test = read("cifar10", tmp_path)
    assert train.inputs.shape == (10, 3, 32, 32)
    assert train.targets.tolist() == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert train.inputs[:, 0, 31, 31].tolist() == [0, 1, 10, 11, 20, 21, 30, 31, 40, 41]
    assert train.inputs[7, :, 5, 6].tolist() == [31, 100, 200]
    assert test.targets.tolist() == [5, 6]


def test_a_batch_of_cifar_is_scaled_by_channel(tmp_path: Path) -> None:
    """By hand: (51/255 - .4914)/.247, (100/255 - .4822)/.2435, (200/255 - .4465)/.2616."""
    write_cifar(tmp_path)
    task, _, test = read("cifar10", tmp_path)
    inputs, _ = task.batch(test, torch.tensor([1]))
    torch.testing.assert_close(inputs[0, :, 0, 0], torch.tensor([-1.179757, -0.369789, 1.291340]))


def test_the_folder_of_the_unpacked_archive_is_found(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-batches-bin").mkdir()
    write_cifar(tmp_path / "cifar-10-batches-bin")
    assert len(read("cifar10", tmp_path)[1]) == 10


def test_missing_cifar_files_are_all_named(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    (tmp_path / "data_batch_3.bin").unlink()
    (tmp_path / "test_batch.bin").unlink()
    with pytest.raises(NotFoundError, match=r"lacks data_batch_3\.bin, test_batch\.bin of CIFAR"):
        read("cifar10", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds 0 bytes, expected a multiple of 3,073"),
        (bytes(RECORD_BYTES + 1), "holds 3,074 bytes, expected a multiple of 3,073"),
        (
            bytes(RECORD_BYTES) + b"\x0a" + bytes(3072),
            "holds 1 labels outside 0 to 9, the first in record 1: 10",
        ),
    ],
    ids=["empty", "cut", "label"],
)
def test_a_cifar_file_that_is_not_right_is_refused_by_name(
    tmp_path: Path, content: bytes, message: str
) -> None:
    write_cifar(tmp_path)
    (tmp_path / "data_batch_4.bin").write_bytes(content)
    with pytest.raises(DataLossError) as caught:
        read("cifar10", tmp_path)
    assert "data_batch_4.bin" in caught.value.message
    assert message in caught.value.message


# Folders


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_a_folder_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotFoundError, match="absent, given as argument data, isn't on this node"):
        load_data(load_task(name, {"data": str(tmp_path / "absent")}))


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotFoundError, match="is a file, not a folder"):
        load_data(load_task("mnist", {"data": str(tmp_path / "file")}))


@pytest.mark.parametrize("folder", ["", "data/mnist"])
def test_a_relative_folder_is_refused(folder: str) -> None:
    with pytest.raises(InvalidArgumentError, match="must be an absolute path"):
        load_data(load_task("mnist", {"data": folder}))


# Models


@pytest.mark.parametrize("name", ["digits", "mnist", "cifar10"])
def test_a_model_is_made_from_the_seed_alone_and_gives_ten_outputs(tmp_path: Path, name: str) -> None:
    write_mnist(tmp_path, "train", 3)
    write_mnist(tmp_path, "t10k", 3)
    write_cifar(tmp_path)
    task = load_task(name, {} if name == "digits" else {"data": str(tmp_path)})
    models = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        models.append(task.model())
    first, same, other = (torch.cat([each.flatten() for each in model.parameters()]) for model in models)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    train, _ = load_data(task)
    inputs, targets = task.batch(train, torch.arange(2))
    assert sample_losses(task, models[0](inputs), targets).shape == (2,)
    assert models[0](inputs).shape == (2, 10)
