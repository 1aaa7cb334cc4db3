"""Aim: a worker reads its part of a file that is larger than its memory, and believes no false header."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from peerloom.worker.plan.tensor_file import read_tensors

READS = """
import resource, sys
from pathlib import Path
import psutil, torch
from peerloom.worker.plan.tensor_file import read_tensors

limit = int(psutil.Process().memory_info().data) + 2**28
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
print(read_tensors(Path(sys.argv[1]), {"small"}.__contains__)["small"].tolist())
"""


def file_of(path: Path, header: dict[str, object], size_bytes: int = 0) -> Path:
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.write(torch.arange(3, dtype=torch.float32).numpy().data)
        file.truncate(max(file.tell(), size_bytes))
    return path


def test_what_is_wanted_is_as_the_library_reads_it(tmp_path: Path) -> None:
    tensors = {
        "a": torch.rand(3, 4),
        "b": torch.arange(5),
        "c": torch.rand(2).bfloat16(),
        "empty": torch.empty(0, 2),
        "one": torch.tensor(7.0, dtype=torch.float64),
    }
    save_file(tensors, tmp_path / "file", metadata={"what": "else"})
    found = read_tensors(tmp_path / "file", lambda name: name != "b")
    assert found.keys() == tensors.keys() - {"b"}
    assert all(torch.equal(found[name], tensors[name]) for name in found)


def test_a_file_beyond_the_limit_of_memory_is_read_for_what_is_wanted(tmp_path: Path) -> None:
    large = 2**32
    header: dict[str, object] = {
        "small": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]},
        "large": {"dtype": "F32", "shape": [large // 4], "data_offsets": [12, 12 + large]},
    }
    path = file_of(tmp_path / "file", header, large)  # a hole: it takes no room on the disk
    told = subprocess.run(
        [sys.executable, "-c", READS, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert told.stdout.strip() == "[0.0, 1.0, 2.0]", told.stderr


@pytest.mark.parametrize(
    "told",
    [
        {"dtype": "F32", "shape": [3], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]},
        {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]},
        {"dtype": "F33", "shape": [3], "data_offsets": [0, 12]},
        {"shape": [3], "data_offsets": [0, 12]},
        {"dtype": "F32", "shape": "three", "data_offsets": [0, 12]},
        [1, 2],
    ],
)
def test_a_header_that_lies_is_refused(told: object, tmp_path: Path) -> None:
    path = file_of(tmp_path / "file", {"small": told})
    with pytest.raises((KeyError, TypeError, ValueError)):
        read_tensors(path, lambda name: True)
