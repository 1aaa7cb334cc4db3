"""Where this process may make cgroups: below its own, by what the kernel says of it and of mounts."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CONTROLLERS = ("memory", "pids")
_DELEGATE = "start the agent by systemd with Delegate=yes, e.g. systemd-run --user --scope -p Delegate=yes"


@dataclass(frozen=True)
class CgroupPlaces:
    """The folders of one's own cgroup that limit memory and tasks: one and the same in version 2.

    Of version 1 each controller has a tree of its own.
    """

    memory: Path
    pids: Path

    @property
    def is_v2(self) -> bool:
        """Whether one tree has both."""
        return self.memory == self.pids

    @property
    def folders(self) -> tuple[Path, ...]:
        """Each folder once."""
        return (self.memory,) if self.is_v2 else (self.memory, self.pids)


def find_places() -> tuple[CgroupPlaces | None, str]:
    """The places for cgroups of this process, or None with what is missing and what to do."""
    try:
        own = Path("/proc/self/cgroup").read_text()
        mounts = Path("/proc/self/mountinfo").read_text()
    except OSError as error:
        return None, f"the kernel tells of no cgroups ({error.strerror})"
    return choose_places(own, mounts)


def choose_places(own: str, mounts: str) -> tuple[CgroupPlaces | None, str]:
    """The same, from the texts of /proc/self/cgroup and /proc/self/mountinfo; version 2 where it has both."""
    paths = dict(_paths_of(own))
    mounted = list(_mounts_of(mounts))
    unified = _folder(mounted, "cgroup2", "", paths.get("", ""))
    if unified is not None and set(CONTROLLERS) <= set(_words(unified / "cgroup.controllers")):
        return _if_writable(CgroupPlaces(unified, unified))
    memory, pids = (_folder(mounted, "cgroup", name, paths.get(name, "")) for name in CONTROLLERS)
    if memory is not None and pids is not None:
        return _if_writable(CgroupPlaces(memory, pids))
    if unified is not None:
        return None, f"{unified} has no memory and pids controllers: {_DELEGATE}"
    return None, "no cgroups with the controllers memory and pids are mounted"


def own_folders(controller: str) -> list[Path]:
    """The folder of this process's cgroup for `controller`, then those around it. Raises OSError."""
    own = Path("/proc/self/cgroup").read_text()
    return folders_around(own, Path("/proc/self/mountinfo").read_text(), controller)


def folders_around(own: str, mounts: str, controller: str) -> list[Path]:
    """The same, from the texts of /proc/self/cgroup and /proc/self/mountinfo; none where nothing counts."""
    paths, mounted = dict(_paths_of(own)), list(_mounts_of(mounts))
    for kind, name in (("cgroup", controller), ("cgroup2", "")):
        folder = _folder(mounted, kind, name, paths.get(name, ""))
        if folder is not None:
            tops = {Path(place) for _, place, its_kind, _ in mounted if its_kind == kind}
            return [one for one in (folder, *folder.parents) if any(one.is_relative_to(top) for top in tops)]
    return []


def _if_writable(places: CgroupPlaces) -> tuple[CgroupPlaces | None, str]:
    for folder in places.folders:
        if not os.access(folder, os.W_OK):
            return None, f"this user can't make cgroups in {folder}: {_DELEGATE}"
    return places, ""


def _paths_of(own: str) -> Iterator[tuple[str, str]]:
    """The path of one's own group by controller; "" is version 2. "4:memory:/a" or "0::/a" a line."""
    for line in own.splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            yield name, path


def _mounts_of(mounts: str) -> Iterator[tuple[str, str, str, list[str]]]:
    """What of each mount counts here: its root, where it is, the file system's kind and its options."""
    for line in mounts.splitlines():
        here, _, there = line.partition(" - ")
        kind, _, options = there.split(" ")[:3]
        if kind in ("cgroup", "cgroup2"):
            yield here.split(" ")[3], here.split(" ")[4], kind, options.split(",")


def _folder(
    mounted: list[tuple[str, str, str, list[str]]], kind: str, controller: str, path: str
) -> Path | None:
    for root, place, its_kind, options in mounted:
        is_it = its_kind == kind and (not controller or controller in options)
        # Another root is a container's: what is mounted there begins below it.
        below = Path("/", os.path.relpath(path or "/", root))
        if is_it and path and ".." not in os.path.relpath(path, root).split("/"):
            return Path(place, *below.parts[1:])
    return None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
