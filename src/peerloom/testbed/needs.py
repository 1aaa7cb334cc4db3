"""What a testbed needs of the machine, looked at before anything is made."""

import importlib.util
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from peerloom.errors import FailedPreconditionError
from peerloom.testbed.plan import Plan

PROGRAM = "peerloom-ns3"
PROGRAM_VARIABLE = "PEERLOOM_NS3"
_OWN_TCP = Path("/proc/sys/net/ipv4/tcp_congestion_control")
_NEXT_TO_US = Path(__file__).parents[3] / "ns3" / "build" / PROGRAM


@dataclass(frozen=True)
class Need:
    """One thing; `found` says what there is, `remedy` is one line that gets it."""

    name: str
    ok: bool
    found: str
    remedy: str


def check_needs(plan: Plan) -> None:
    """Raises FailedPreconditionError that names all that is missing, each with its remedy."""
    missing = [need for need in needs_of(plan) if not need.ok]
    if missing:
        lines = "\n".join(f"  {need.name}: {need.found}. {need.remedy}" for need in missing)
        raise FailedPreconditionError(
            f"This machine can't run the testbed {plan.name!r}; nothing was made. Missing:\n{lines}",
            reason="NEEDS_MISSING",
            metadata={"missing": ",".join(need.name for need in missing)},
        )


def own_congestion_control() -> str:
    """What this machine's own TCP uses, by the kernel's name; where it says none, "reno", which each has."""
    return _OWN_TCP.read_text().strip() if _OWN_TCP.exists() else "reno"


def needs_of(plan: Plan) -> list[Need]:
    """Everything that this plan needs."""
    found = [need_root(), need_package("pyroute2"), need_setpriv()]
    if plan.backend == "ns3":
        found += [need_tun(), need_ns3()]
    if any(host.nat for host in plan.hosts):
        found.append(need_iptables())
    if any(host.isolation == "container" for host in plan.hosts):
        found += [need_package("docker"), *_docker_needs(plan.containers.image)]
    return found


def need_root() -> Need:
    """Whether we may make namespaces and links."""
    name = os.geteuid()
    return Need("root", name == 0, "root" if name == 0 else f"user {name}", "Run it with sudo.")


def need_tun() -> Need:
    """Whether the kernel lends taps."""
    ok = Path("/dev/net/tun").exists()
    return Need("tun", ok, "/dev/net/tun" if ok else "no /dev/net/tun", "Load it: modprobe tun")


def need_iptables() -> Need:
    """Whether NAT can be set up."""
    path = shutil.which("iptables")
    return Need("iptables", path is not None, path or "no iptables", "Install it: apt-get install iptables")


def need_setpriv() -> Need:
    """Whether programs can be started as users without rights."""
    path = shutil.which("setpriv")
    return Need("setpriv", path is not None, path or "no setpriv", "Install it: apt-get install util-linux")


def need_ns3() -> Need:
    """Whether our ns-3 program is built."""
    path = ns3_program()
    remedy = f"Build it: bash ns3/install.sh; or set {PROGRAM_VARIABLE} to its path."
    return Need("ns-3", path is not None, str(path) if path else f"no program {PROGRAM}", remedy)


def ns3_program() -> Path | None:
    """The program: what PEERLOOM_NS3 names, else that of this source tree, else that of the PATH."""
    named = os.environ.get(PROGRAM_VARIABLE)
    known = Path(named) if named else _NEXT_TO_US
    if os.access(known, os.X_OK) and known.is_file():
        return known
    found = None if named else shutil.which(PROGRAM)
    return Path(found) if found else None


def need_package(name: str) -> Need:
    """Whether a Python package is installed."""
    ok = importlib.util.find_spec(name) is not None
    return Need(
        name, ok, "installed" if ok else "not installed", "Install it: pip install 'peerloom[testbed]'"
    )


def _docker_needs(image: str) -> Iterable[Need]:
    if importlib.util.find_spec("docker") is None:
        return
    from peerloom.errors import UnavailableError
    from peerloom.testbed.containers import Engine

    try:
        with Engine() as engine:
            has_image = engine.has_image(image)
    except UnavailableError as error:
        yield Need("docker", False, error.message, "Start it: service docker start")
        return
    found = image if has_image else f"no image {image}"
    yield Need(
        "image", has_image, found, "Build it: see deploy/README.md; or name another (containers.image)."
    )
