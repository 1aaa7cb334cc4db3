"""The text of a systemd unit for one of our services: pure, and the one place that says what it may do."""

from collections.abc import Sequence
from dataclasses import dataclass

HEADER = "# Written by `peerloom service install`, which may write it anew. Change it with: systemctl edit"
BACKOFF_VERSION = 254  # of systemd, the first that waits longer and longer before it starts a service again
SERVICES = ("registry", "selector", "trainer", "agent", "dashboard")
_COMMANDS = {"agent": "node"}

# What every service does without; nothing here needs a mount namespace, which a user may lack.
_ALL = (
    "NoNewPrivileges=yes",
    "LockPersonality=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
    "UMask=0077",
)
_SYSTEM = (
    "CapabilityBoundingSet=",
    "PrivateTmp=yes",
    "ProtectHome=read-only",
    "ProtectHostname=yes",
    "ProtectKernelModules=yes",
    "ProtectSystem=strict",
)
_COORDINATOR = (
    "PrivateDevices=yes",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelTunables=yes",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "RestrictNamespaces=yes",
    "SystemCallErrorNumber=EPERM",
    "# The trainer evaluates models in a sandbox that it makes by these.",
    "SystemCallFilter=@system-service",
    "SystemCallFilter=seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self",
)
_AGENT = (
    "# Its own sandbox makes namespaces, mounts /proc and filters system calls, and workers use GPUs: what",
    "# RestrictNamespaces, ProtectKernelTunables, PrivateDevices and the like take away is needed.",
    "Delegate=yes",
)


@dataclass(frozen=True)
class Unit:
    """One service as systemd is to run it.

    `service` is one of SERVICES, `name` what its unit and state folder are called, `arguments` its flags.
    `python` is the interpreter's path. `is_of_user` is for a user's own systemd, else it runs as `run_as`
    (empty: as a user that systemd makes up). `state` is a folder of one's own choice (empty: systemd's);
    `systemd` the version that reads it.
    """

    service: str
    name: str
    arguments: tuple[str, ...]
    python: str
    is_of_user: bool
    run_as: str = ""
    state: str = ""
    systemd: int = BACKOFF_VERSION


def unit_text(unit: Unit) -> str:
    """The file's content."""
    wanted_by = "default.target" if unit.is_of_user else "multi-user.target"
    network = () if unit.is_of_user else ("Wants=network-online.target", "After=network-online.target")
    sections = (
        ("Unit", (f"Description=Peerloom {unit.service} ({unit.name})", *network, "StartLimitIntervalSec=0")),
        ("Service", (*_process(unit), *_restart(unit), *_folders(unit), *_hardening(unit))),
        ("Install", (f"WantedBy={wanted_by}",)),
    )
    blocks = ["\n".join((f"[{title}]", *lines)) for title, lines in sections]
    return "\n\n".join((HEADER, *blocks)) + "\n"


def quoted(word: str) -> str:
    """A word of a command line as systemd reads it: nothing in it is a specifier or a variable."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    is_simple = plain != "" and not set(plain) & set(" \t'\"\\;")
    return plain if is_simple else f'"{plain}"'


def _process(unit: Unit) -> Sequence[str]:
    command = (unit.python, "-m", "peerloom.cli", _COMMANDS.get(unit.service, unit.service), *unit.arguments)
    words = [quoted(word) for word in command]
    if unit.service != "dashboard":
        words += ["--state", quoted(unit.state) if unit.state else f"%S/peerloom/{unit.name}"]
    is_told = () if unit.service == "dashboard" else ("NotifyAccess=main", "WatchdogSec=60")
    return (
        "Type=exec" if unit.service == "dashboard" else "Type=notify",
        *is_told,
        f"ExecStart={' '.join(words)}",
        f"EnvironmentFile=-%E/peerloom/{unit.name}.env",
        *((f"User={unit.run_as}",) if unit.run_as else () if unit.is_of_user else ("DynamicUser=yes",)),
    )


def _restart(unit: Unit) -> Sequence[str]:
    longer = ("RestartSec=1", "RestartSteps=6", "RestartMaxDelaySec=60")
    return (
        "Restart=always",
        *(longer if unit.systemd >= BACKOFF_VERSION else ("RestartSec=5",)),
        "# The service is asked, and asks its own processes: workers hand over at the end of a step.",
        "KillMode=mixed",
        f"TimeoutStopSec={30 if unit.service == 'agent' else 20}",
        "TimeoutStartSec=300",
    )


def _folders(unit: Unit) -> Sequence[str]:
    if unit.state:
        return () if unit.is_of_user else (f"ReadWritePaths={quoted(unit.state)}",)
    return (f"StateDirectory=peerloom/{unit.name}", "StateDirectoryMode=0700")


def _hardening(unit: Unit) -> Sequence[str]:
    if unit.is_of_user:
        return (*_ALL, *(_AGENT if unit.service == "agent" else ()))
    return (*_ALL, *_SYSTEM, *(_AGENT if unit.service == "agent" else _COORDINATOR))
