"""Where cgroups can be made, from what the kernel's files say: both versions, and containers."""

from pathlib import Path

from peerloom.sandbox.cgroup_places import CgroupPlaces, choose_places


def v2_tree(folder: Path, controllers: str) -> Path:
    own = folder / "unified" / "user.slice" / "agent.scope"
    own.mkdir(parents=True)
    (own / "cgroup.controllers").write_text(controllers)
    return own


def mounts(folder: Path, *, root: str = "/") -> str:
    return (
        f"30 24 0:26 {root} {folder}/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
        f"31 24 0:27 {root} {folder}/memory rw - cgroup cgroup rw,memory\n"
        f"32 24 0:28 {root} {folder}/pids rw - cgroup cgroup rw,pids\n"
        "33 24 0:29 / /tmp rw - tmpfs tmpfs rw\n"
    )


def test_version_2_is_taken_where_it_has_both_controllers(tmp_path: Path) -> None:
    own = v2_tree(tmp_path, "cpu memory pids\n")
    places, why_not = choose_places("0::/user.slice/agent.scope\n", mounts(tmp_path))
    assert (places, why_not) == (CgroupPlaces(own, own), "")
    assert places is not None
    assert places.is_v2
    assert places.folders == (own,)


def test_version_1_is_taken_where_version_2_has_not(tmp_path: Path) -> None:
    v2_tree(tmp_path, "hugetlb\n")
    for name in ("memory/jobs/a", "pids"):
        (tmp_path / name).mkdir(parents=True)
    own = "5:pids:/\n4:cpu,memory:/jobs/a\n0::/user.slice/agent.scope\n"
    places, _ = choose_places(own, mounts(tmp_path))
    assert places == CgroupPlaces(tmp_path / "memory" / "jobs" / "a", tmp_path / "pids")
    assert places.folders == (places.memory, places.pids)


def test_what_a_container_mounts_begins_at_its_root(tmp_path: Path) -> None:
    own = tmp_path / "unified" / "mine"
    own.mkdir(parents=True)
    (own / "cgroup.controllers").write_text("memory pids")
    places, _ = choose_places("0::/docker/abc/mine\n", mounts(tmp_path, root="/docker/abc"))
    assert places == CgroupPlaces(own, own)
    assert choose_places("0::/../other\n", mounts(tmp_path))[0] is None


def test_a_group_without_the_controllers_says_what_to_do(tmp_path: Path) -> None:
    own = v2_tree(tmp_path, "cpu\n")
    places, why = choose_places("0::/user.slice/agent.scope\n", mounts(tmp_path))
    assert places is None
    assert why.startswith(f"{own} has no memory and pids controllers: start the agent by systemd with")


def test_where_nothing_is_mounted_there_are_none() -> None:
    places, why = choose_places("0::/\n", "33 24 0:29 / /tmp rw - tmpfs tmpfs rw\n")
    assert (places, why) == (None, "no cgroups with the controllers memory and pids are mounted")
