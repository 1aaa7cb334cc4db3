"""What this machine can do: each check looks at one thing and says how to get it."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from peerloom.cli.invocation import default_state
from peerloom.kit.quantity_texts import shown_bytes
from peerloom.sandbox.bubblewrap import why_no_bubblewrap
from peerloom.sandbox.cgroups import why_no_cgroups
from peerloom.sandbox.kernel_support import find_support

_COMMAND_LIMIT_S = 5.0
_REGISTRY_PORT = 7400


@dataclass(frozen=True)
class Finding:
    """What was looked at, what was found, and how to get it where it is missing."""

    name: str
    ok: bool
    found: str
    purpose: str = ""
    remedy: str = ""


def examine() -> list[Finding]:
    """All checks, the most needed first."""
    return [
        _python(),
        _cores(),
        _memory(),
        _package("torch", "to train on this machine"),
        _package("safetensors", "to train on this machine"),
        _package("scikit-learn", "for the digits task"),
        _gpus(),
        _sandbox(),
        _docker(),
        _ns3(),
        _network_rights(),
        _port(_REGISTRY_PORT),
        _state_folder(default_state()),
    ]


def _python() -> Finding:
    found = ".".join(str(part) for part in sys.version_info[:3])
    return Finding(
        "Python", sys.version_info >= (3, 11), found, "for everything", "install Python 3.11 or newer"
    )


def _cores() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    enough = usable >= 2
    return Finding("cores", enough, f"{usable} usable", "for more than one worker", "give it two or more")


def _memory() -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    found = f"{shown_bytes(memory.available)} free of {shown_bytes(memory.total)}"
    remedy = "close other programs, or lend fewer slots (about 0.4 GB each)"
    return Finding("memory", memory.available >= 4e9, found, "for the nine slots of the demo", remedy)


def _package(name: str, purpose: str) -> Finding:
    try:
        return Finding(name, True, version(name))
    except PackageNotFoundError:
        return Finding(name, False, "not installed", purpose, "pip install 'peerloom[train]'")


def _gpus() -> Finding:
    listed = _ask("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")
    if listed:
        return Finding("GPUs", True, "; ".join(listed.splitlines()))
    return Finding("GPUs", False, "no NVIDIA GPU", "to train on GPUs", "install the NVIDIA driver")


def _sandbox() -> Finding:
    support, why_not = find_support(), why_no_bubblewrap()
    remedy = f"{support.why_not} (or say --no-sandbox, and trust whoever sends jobs)"
    no_groups = why_no_cgroups()
    layers = replace(support, bubblewrap=not why_not, cgroup=not no_groups)
    found = f"{layers}; no second layer: {why_not}" if why_not else str(layers)
    found += f"; no cgroups: {no_groups}" if no_groups else ""
    return Finding("sandbox", support.is_whole, found, "to run code that jobs bring", remedy)


def _docker() -> Finding:
    engine = _ask("docker", "info", "--format", "{{.ServerVersion}}")
    if engine:
        return Finding("docker", True, f"engine {engine}")
    if shutil.which("docker"):
        return Finding(
            "docker",
            False,
            "no engine answers",
            "to run in containers",
            "sudo service docker start",
        )
    return Finding(
        "docker", False, "not installed", "to run in containers", "see docs.docker.com/engine/install"
    )


def _ns3() -> Finding:
    from peerloom.testbed.needs import need_ns3

    need = need_ns3()
    return Finding("ns-3", need.ok, need.found, "for an emulated network between nodes", need.remedy)


def _network_rights() -> Finding:
    missing = [] if hasattr(os, "geteuid") and os.geteuid() == 0 else ["not root"]
    if not Path("/dev/net/tun").exists():
        missing.append("no /dev/net/tun")
    found = ", ".join(missing) or "root, /dev/net/tun"
    remedy = "run as root; modprobe tun"
    return Finding("network rights", not missing, found, "for an emulated network between nodes", remedy)


def _port(port: int) -> Finding:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            remedy = "one may be up already; else choose another with --listen"
            return Finding(
                f"port {port}",
                False,
                error.strerror or "taken",
                "for a registry at its default address",
                remedy,
            )
    return Finding(f"port {port}", True, "free")


def _state_folder(state: Path) -> Finding:
    existing = next(folder for folder in (state, *state.absolute().parents) if folder.is_dir())
    try:
        with tempfile.TemporaryFile(dir=existing):
            free = shown_bytes(shutil.disk_usage(existing).free)
    except OSError as error:
        found = f"{state} can't be written ({error.strerror})"
        return Finding(
            "state folder", False, found, "to keep anything", "set PEERLOOM_STATE to a folder of yours"
        )
    return Finding("state folder", True, f"{state}, {free} free")


def _ask(*command: str) -> str:
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMMAND_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""
