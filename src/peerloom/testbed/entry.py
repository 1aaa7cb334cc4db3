"""How a testbed's own services get in: a token for each that has no certificate which still counts."""

import time
from collections.abc import Mapping
from pathlib import Path

from peerloom.kit.identity import FILE_NAME, Identity
from peerloom.kit.principal import Role
from peerloom.testbed.plan import Plan
from peerloom.testbed.programs import node_folder, services_folder
from peerloom.testbed.services import ControlPlane

_OURS = "registry"  # the owner of what belongs to whoever runs the registry


def join_environments(plan: Plan, state: Path, control: ControlPlane) -> Mapping[str, Mapping[str, str]]:
    """What selector, trainer and each host's agent have in their environment to get in, by program.

    Not in their flags, which all users of the machine see. Each host is an owner of its own, as in a testbed
    without a door, where nobody needs any of this. Raises UnavailableError.
    """
    if not plan.door:
        return {}
    found = {}
    for role in (Role.SELECTOR, Role.TRAINER):
        if not _counts(services_folder(plan, state) / role / FILE_NAME):
            found[str(role)] = {f"PEERLOOM_{role.upper()}_JOIN": control.make_token(role, _OURS, "")}
    for host in plan.hosts:
        identity = node_folder(plan, state, host.name) / FILE_NAME
        if not _counts(identity):
            former = Identity(identity).principal.id if identity.exists() else ""
            found[host.name] = {"PEERLOOM_NODE_JOIN": control.make_token(Role.NODE, host.name, former)}
    return found


def _counts(identity: Path) -> bool:
    return identity.exists() and Identity(identity).current.ends_s > time.time()
