"""Turns a testbed file into a plan: fills the defaults in, and refuses what can't work."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from peerloom.errors import ConfigurationError, NotFoundError
from peerloom.testbed import quantities
from peerloom.testbed.addresses import AddressBook, mac_of
from peerloom.testbed.documents import Document, read_document
from peerloom.testbed.documents import Path as Where
from peerloom.testbed.needs import own_congestion_control
from peerloom.testbed.plan import (
    CONTROL,
    HOME_NETWORK,
    Action,
    BackendName,
    ContainerPlan,
    Host,
    Isolation,
    Link,
    Network,
    Plan,
    RandomSessions,
    TimedAction,
)

DEFAULT_NODES = 20
DEFAULT_SUBNET = "10.77.0.0/24"
# Of code, or of files, that root would run, read or write.
_RUNS_CODE = frozenset(
    {
        "allow_code",
        "database",
        "measure_command",
        "no_sandbox",
        "own_policies",
        "join",
        "join_listen",
        "worker_command",
    }
)
_FIXED_SETTINGS = {"listen", "advertise", "registry", "state", "allow_plain", "name", "slots"}


def load_plan(path: Path, backend: BackendName | None = None, isolation: Isolation | None = None) -> Plan:
    """Reads a testbed file; `backend` and `isolation` go before what it says.

    Raises NotFoundError when it isn't there, ConfigurationError with the line for all that is wrong in it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise NotFoundError(f"The testbed file {path} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is no text in UTF-8.") from error
    return with_choices(parse_plan(str(path), text), backend, isolation)


def with_choices(plan: Plan, backend: BackendName | None, isolation: Isolation | None) -> Plan:
    """The plan with another back end, or all hosts of one kind."""
    if isolation is not None:
        hosts = tuple(dataclasses.replace(host, isolation=isolation) for host in plan.hosts)
        plan = dataclasses.replace(plan, hosts=hosts)
    return dataclasses.replace(plan, backend=backend or plan.backend)


def parse_plan(name: str, text: str) -> Plan:
    """The plan in a file's text; `name` is the file's, for messages. Raises ConfigurationError."""
    document = read_document(name, text)
    content: dict[str, Any] = document.content
    network = _network(document, content.get("network", {}))
    book = AddressBook(document, network)
    control = _control(document, content.get("control", {}), network, book)
    isolation: Isolation = content.get("isolation", "namespace")
    hosts = tuple(
        _host(document, one, ("hosts", number), network, isolation, book)
        for number, one in enumerate(content["hosts"])
    )
    _check_nat(document, hosts, network, has_door=content.get("door", True))
    names = [host.name for host in hosts]
    churn = content.get("churn", {})
    return Plan(
        name=content.get("name") or _name_of(name),
        backend=content.get("backend", "ns3"),
        door=content.get("door", True),
        network=network,
        control=control,
        hosts=hosts,
        containers=_containers(content.get("containers", {})),
        settings=_settings(document, content.get("settings", {})),
        script=tuple(
            _step(document, step, ("churn", "script", number), names, network.medium)
            for number, step in enumerate(churn.get("script", ()))
        ),
        sessions=_sessions(document, churn.get("random"), names),
        faithful_lag_s=quantities.seconds(content.get("faithful_lag", "100ms")),
        source=name,
        text=text,
    )


def _name_of(file: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", Path(file).stem.lower()).strip("-")[:31] or "testbed"


def _network(document: Document, content: Mapping[str, Any]) -> Network:
    medium = content.get("medium", "csma")
    standard = Link(
        quantities.bits_per_s(content.get("rate", "100Mbps")),
        quantities.seconds(content.get("delay", "1us")),
        float(content.get("loss", 0.0)),
    )
    if standard.rate_bits_per_s <= 0:
        raise document.fail(("network", "rate"), "network.rate is 0, but a network must carry something.")
    return Network(
        nodes=content.get("nodes", DEFAULT_NODES),
        medium=medium,
        default_link=standard,
        mtu_bytes=content.get("mtu", 9000),
        background_bits_per_s=quantities.bits_per_s(content.get("background", 0)),
        subnet=content.get("subnet", DEFAULT_SUBNET),
        seed=content.get("seed", 1),
        congestion_control=content.get("congestion_control") or own_congestion_control(),
    )


def _control(document: Document, content: Mapping[str, Any], network: Network, book: AddressBook) -> Host:
    node, where = content.get("node", 0), ("control",)
    book.take_node(node, CONTROL, where)
    address = content.get("address") or book.first()
    book.take_address(address, CONTROL, where)
    mac = mac_of(node)
    book.take_mac(mac, CONTROL, where)
    link = _link(document, content.get("link"), network, (*where, "link"))
    return Host(CONTROL, node, address, mac, 0, "namespace", link)


def _host(
    document: Document,
    content: Mapping[str, Any],
    where: Where,
    network: Network,
    isolation: Isolation,
    book: AddressBook,
) -> Host:
    name, node = content["name"], content["node"]
    book.take_name(name, where)
    book.take_node(node, name, where)
    address = content.get("address") or book.of_node(node, where)
    book.take_address(address, name, where)
    mac = content.get("mac") or mac_of(node)
    book.take_mac(mac, name, where)
    link = _link(document, content.get("link"), network, (*where, "link"))
    return Host(
        name,
        node,
        address,
        mac,
        content.get("slots", 1),
        content.get("isolation", isolation),
        link,
        nat=content.get("nat", False),
        relay=content.get("relay", False),
    )


def _check_nat(document: Document, hosts: Sequence[Host], network: Network, has_door: bool) -> None:
    number = next((number for number, host in enumerate(hosts) if host.nat), None)
    if number is None:
        return
    where: Where = ("hosts", number, "nat")
    if not has_door:
        raise document.fail(
            where, "a plain node behind NAT gets no work: nat needs the door (leave door: false out)."
        )
    if not any(host.relay and not host.nat for host in hosts):
        message = "nobody reaches a host behind NAT without a relay: say relay: true of a host without nat."
        raise document.fail(where, message)
    if IPv4Network(HOME_NETWORK).overlaps(IPv4Network(network.subnet)):
        message = f"network.subnet overlaps {HOME_NETWORK}, which hosts behind NAT are in: choose another."
        raise document.fail(("network", "subnet"), message)


def _link(document: Document, content: Mapping[str, Any] | None, network: Network, where: Where) -> Link:
    if content is None:
        return network.default_link
    if network.medium == "csma":
        message = "a link of its own needs the medium wan: on csma all nodes share one (network.medium)."
        raise document.fail(where, message)
    standard = network.default_link
    link = Link(
        quantities.bits_per_s(content["rate"]) if "rate" in content else standard.rate_bits_per_s,
        quantities.seconds(content["delay"]) if "delay" in content else standard.delay_s,
        float(content.get("loss", standard.loss_ratio)),
    )
    if link.rate_bits_per_s <= 0:
        raise document.fail(
            (*where, "rate"), "a link's rate is 0; a host that is away is made by churn: leave."
        )
    return link


def _containers(content: Mapping[str, Any]) -> ContainerPlan:
    standard = ContainerPlan()
    return ContainerPlan(
        image=content.get("image", standard.image),
        python=content.get("python", standard.python),
        memory_bytes=quantities.size_bytes(content["memory"])
        if "memory" in content
        else standard.memory_bytes,
        pids=content.get("pids", standard.pids),
        gpus=content.get("gpus", standard.gpus),
        mounts=tuple(
            (here, there) for here, _, there in (m.partition(":") for m in content.get("mounts", ()))
        ),
        environment={name: str(value) for name, value in content.get("environment", {}).items()},
    )


def _settings(document: Document, content: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    for service, knobs in content.items():
        for knob in knobs:
            if knob in _FIXED_SETTINGS:
                message = f"the testbed itself decides on {knob!r} of the {service}: leave it out."
                raise document.fail(("settings", service, knob), message)
            if knob in _RUNS_CODE:
                message = (
                    f"{knob!r} of the {service} names code or files of this machine, which a testbed would "
                    "use as root: a testbed file can't set it."
                )
                raise document.fail(("settings", service, knob), message)
    return {
        service: {
            knob: str(value).lower() if isinstance(value, bool) else str(value)
            for knob, value in knobs.items()
        }
        for service, knobs in content.items()
    }


def _step(
    document: Document, content: Mapping[str, Any], where: Where, names: list[str], medium: str
) -> TimedAction:
    do = content["do"]
    needed = {"partition": "sets", "heal": None}.get(do, "hosts")
    whole_lan = do in ("rate", "delay") and medium == "csma"
    if needed is not None and needed not in content and not whole_lan:
        raise document.fail(
            where, f"the step {do!r} names no {needed.rstrip('s')}: give it the key {needed!r}."
        )
    value = 0.0
    if do in ("loss", "rate", "delay"):
        if do not in content:
            raise document.fail(where, f"the step {do!r} says nothing of how much: give it the key {do!r}.")
        value = value_of(do, content[do])
    for key in content:
        if key not in ("at", "do", needed, do):
            raise document.fail((*where, key), f"the step {do!r} has no use for {key!r}.")
    hosts, sets = tuple(content.get("hosts", ())), tuple(tuple(one) for one in content.get("sets", ()))
    _check_hosts(document, (*hosts, *(name for one in sets for name in one)), where, names)
    return TimedAction(quantities.seconds(content["at"]), Action(do, hosts, value, sets))


def value_of(do: str, text: str | float) -> float:
    """A step's value: of loss a ratio, of rate bits a second, of delay seconds."""
    if do == "rate":
        return quantities.bits_per_s(text)
    return quantities.seconds(text) if do == "delay" else float(text)


def _sessions(
    document: Document, content: Mapping[str, Any] | None, names: list[str]
) -> RandomSessions | None:
    if content is None:
        return None
    where: Where = ("churn", "random")
    _check_hosts(document, tuple(content["hosts"]), where, names)
    online_s, offline_s = quantities.seconds(content["online"]), quantities.seconds(content["offline"])
    if min(online_s, offline_s) < 0.1:
        raise document.fail(where, "churn.random: the mean times online and offline must be 100ms or more.")
    until_s = quantities.seconds(content["until"])
    return RandomSessions(tuple(content["hosts"]), online_s, offline_s, until_s, content.get("seed", 1))


def _check_hosts(document: Document, given: tuple[str, ...], where: Where, names: list[str]) -> None:
    seen: set[str] = set()
    for name in given:
        if name not in (*names, CONTROL):
            raise document.fail(where, NotFoundError.of_name("host", name, [*names, CONTROL]).message)
        if name in seen:
            raise document.fail(where, f"{name!r} is named twice.")
        seen.add(name)
