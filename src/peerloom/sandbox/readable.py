"""What Python has to read: itself, its packages, and the libraries that both load."""

import glob
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store")


@dataclass(frozen=True)
class Readable:
    """Folders and files that are read with all below them, and folders that are only listed."""

    reads: tuple[str, ...]
    lists: tuple[str, ...] = ()


def interpreter_files() -> Readable:
    """What the running interpreter imports from, as far as it knows.

    Of the folder that it was started in, which `python -m` adds unasked, only what can be imported.
    """
    working = os.getcwd()
    given = {os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry}
    folders = {os.path.abspath(entry) for entry in sys.path}
    is_added = working in folders and working not in given
    folders -= {working} if is_added else set()
    libraries = filter(os.path.isabs, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    found = {*_SYSTEM, sys.prefix, sys.base_prefix, *folders, *libraries, *_editable(), *_links_in(folders)}
    importable = _importable_in(Path(working)) if is_added else ()
    return Readable((*sorted(found), *importable), (working,) if is_added else ())


@cache
def known_interpreter_files() -> Readable:
    """The same, looked up once: before the fork, so that no worker has to."""
    return interpreter_files()


def gpu_devices() -> list[str]:
    """The device files of NVIDIA's driver."""
    return glob.glob("/dev/nvidia*")


def without(paths: Iterable[str], private: str) -> Readable:
    """The same files, but not those below `private`: what lies beside it, folder by folder, instead.

    Of a hidden folder on the way to it, nothing: other services may keep theirs there. What is on the way can
    still be listed, with all below. Links are followed first.
    """
    hidden = Path(os.path.realpath(private)) if private else None
    reads: list[str] = []
    lists: list[str] = []
    waiting = [Path(os.path.realpath(path)) for path in paths]
    while waiting:
        path = waiting.pop()
        if hidden is None or not hidden.is_relative_to(path):
            if hidden is None or not path.is_relative_to(hidden):
                reads.append(str(path))
        elif path != hidden:
            lists.append(str(path))
            beside = [entry for entry in _entries(path) if not os.path.islink(entry)]
            on_way = {entry for entry in beside if hidden.is_relative_to(entry)}
            waiting += [entry for entry in beside if not (entry in on_way and entry.name.startswith("."))]
    return Readable(tuple(sorted(reads)), tuple(sorted(lists)))


# Not the methods of Path: what may not be looked at is no file and no link, and no error either.
def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _importable_in(folder: Path) -> Iterator[str]:
    for entry in _entries(folder):
        if entry.suffix in (".py", ".so") or os.path.isfile(entry / "__init__.py"):
            yield os.path.realpath(entry)


def _links_in(folders: Iterable[str]) -> Iterator[str]:
    """Where packages are that are only linked from a folder of packages, as some installers do."""
    for folder in folders:
        for entry in _entries(Path(folder)):
            if os.path.islink(entry):
                yield os.path.realpath(entry)


def _editable() -> Iterator[str]:
    """Packages that are imported from where they are worked on: setuptools keeps a mapping of them."""
    for finder in sys.meta_path:
        module = sys.modules.get(getattr(finder, "__module__", ""))
        mapping = getattr(module, "MAPPING", None)
        if isinstance(mapping, dict):
            yield from (str(path) for path in mapping.values())
