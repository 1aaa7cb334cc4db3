"""What a cgroup may use and uses, from the kernel's files: both versions, and limits of groups around it."""

from pathlib import Path

import pytest

from peerloom.sandbox.cgroup_places import folders_around
from peerloom.sandbox.cgroup_usage import CpuLimit, MemoryLimit, cpu_limit_of, memory_limit_of


def group(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_the_folders_are_one_s_own_and_those_around_it_up_to_the_mount(tmp_path: Path) -> None:
    mounts = (
        f"30 24 0:26 / {tmp_path}/unified rw - cgroup2 cgroup2 rw\n"
        f"31 24 0:27 / {tmp_path}/memory rw - cgroup cgroup rw,memory\n"
    )
    own = "4:memory:/jobs/a\n0::/agent.scope\n"
    memory = tmp_path / "memory"
    assert folders_around(own, mounts, "memory") == [memory / "jobs" / "a", memory / "jobs", memory]
    unified = tmp_path / "unified"
    assert folders_around(own, mounts, "cpu") == [unified / "agent.scope", unified]
    assert folders_around("", "", "cpu") == []


def test_the_nearest_limit_of_version_2_counts(tmp_path: Path) -> None:
    own = group(tmp_path / "a" / "b", cpu__max="max 100000\n", memory__max="max\n")
    around = group(
        tmp_path / "a",
        cpu__max="150000 100000\n",
        cpu__stat="usage_usec 2500000\nuser_usec 1\n",
        memory__max="1000\n",
        memory__current="700\n",
        memory__stat="anon 400\ninactive_file 300\n",
    )
    assert cpu_limit_of([own, around]) == CpuLimit(cores=1.5, used_s=2.5)
    assert memory_limit_of([own, around]) == MemoryLimit(limit_bytes=1000, used_bytes=400)
    assert cpu_limit_of([own]) is None
    assert memory_limit_of([own, tmp_path]) is None


def test_version_1_has_files_of_its_own(tmp_path: Path) -> None:
    limited = group(
        tmp_path / "limited",
        cpu__cfs_quota_us="50000",
        cpu__cfs_period_us="100000",
        cpuacct__usage="4000000000",
        memory__limit_in_bytes="2000",
        memory__usage_in_bytes="900",
        memory__stat="total_inactive_file 100",
    )
    free = group(tmp_path / "free", cpu__cfs_quota_us="-1", memory__limit_in_bytes="9223372036854771712")
    assert cpu_limit_of([free, limited]) == CpuLimit(cores=0.5, used_s=4.0)
    assert memory_limit_of([free, limited]) == MemoryLimit(limit_bytes=2000, used_bytes=800)
    assert cpu_limit_of([free]) is None


def test_a_limit_whose_use_can_t_be_read_is_no_guess(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"cpu\.stat"):
        cpu_limit_of([group(tmp_path, cpu__max="50000 100000")])
