"""Which processes make up a system, with which arguments, and in which order they stop."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from peerloom.errors import InvalidArgumentError

DEFAULT_SLOTS = (3, 2, 2, 1, 1)
SERVICES = ("registry", "selector", "trainer")
NODE_LIMIT = 64
SLOT_LIMIT = 1024


@dataclass(frozen=True)
class ProcessPlan:
    """One process; `kind` is registry, selector, trainer or node."""

    name: str
    kind: str
    module: str
    arguments: tuple[str, ...]

    @property
    def stop_phase(self) -> int:
        """Lower stops earlier: who gives work, who does it, then those whom they report to."""
        return {"trainer": 0, "node": 1, "selector": 2, "registry": 3}[self.kind]


def plan_processes(
    state: Path,
    slots: Sequence[int],
    services: Collection[str],
    log_level: str,
    data_roots: Sequence[Path] = (),
) -> tuple[ProcessPlan, ...]:
    """The processes, the registry first; addresses are added when they start. Nodes lend the `data_roots`.

    Raises InvalidArgumentError for more than 64 nodes, slots outside 0 to 1024, an unknown service, or a
    system without a registry.
    """
    _check(slots, services)
    common = ("--log-level", log_level)
    lent = [flag for root in data_roots for flag in ("--data-root", str(root.expanduser().absolute()))]
    planned = [
        ProcessPlan(name, name, f"peerloom.services.{name}", ("--state", str(state / name), *common))
        for name in SERVICES
        if name in services
    ]
    for number, count in enumerate(slots, start=1):
        name = f"node-{number}"
        own = ("--name", name, "--slots", str(count), "--threads-per-slot", "1")
        folder = ("--state", str(state / "nodes" / name))
        planned.append(
            ProcessPlan(name, "node", "peerloom.services.node_agent", (*folder, *common, *own, *lent))
        )
    return tuple(planned)


def _check(slots: Sequence[int], services: Collection[str]) -> None:
    if len(slots) > NODE_LIMIT:
        raise InvalidArgumentError.of_field("nodes", len(slots), f"at most {NODE_LIMIT} nodes")
    for count in slots:
        if not 0 <= count <= SLOT_LIMIT:
            raise InvalidArgumentError.of_field("slots of a node", count, f"from 0 to {SLOT_LIMIT}")
    for name in services:
        if name not in SERVICES:
            raise InvalidArgumentError.of_field("services", name, f"one of {', '.join(SERVICES)}")
    if "registry" not in services:
        limit = "a choice that has the registry in it"
        raise InvalidArgumentError.of_field("services", ",".join(services), limit)
