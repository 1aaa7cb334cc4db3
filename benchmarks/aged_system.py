"""Registry, selector and trainer of a given age, on databases of a given engine."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import grpc
import sqlalchemy as sa

from benchmarks.aged_calls import NOWHERE, PAGE, System
from benchmarks.aged_rows import fill_registry, fill_selector, fill_trainer
from benchmarks.chaos.system import COORDINATORS
from benchmarks.crowd_system import Crowd, Service
from benchmarks.new_database import new_postgresql
from benchmarks.registry_agent import NAME
from peerloom import Client
from peerloom.services.selector import tables
from peerloom.services.trainer.jobs.specs import complete_spec
from peerloom.v1.selector_pb2 import Requirements
from peerloom.v1.trainer_pb2 import JobSpec

FOLLOW_LIMIT_S, LOOK_S = 120.0, 0.2
EVERYWHERE, LOOPBACK = "0.0.0.0", "127.0.0.1"  # agents dial another address of loopback each
# Nobody beats while calls are timed: the registry is to wait for them.
PATIENT = ("--restart-grace-s", "36000", "--allow-plain")
Url = Callable[[str], str]  # of the database of a service


@contextmanager
def sqlite() -> Iterator[Url]:
    """Files that last as long as they are used."""
    with tempfile.TemporaryDirectory(prefix="peerloom-aged-") as folder:
        yield lambda name: f"sqlite:///{folder}/{name}.sqlite"


@contextmanager
def postgresql() -> Iterator[Url]:
    """One database for all services, which lasts as long as it is used."""
    with new_postgresql() as url:
        yield lambda name: url


@contextmanager
def aged_system(url: Url, nodes: int, days: int) -> Iterator[System]:
    """A system of so many nodes, and of that age, which serves."""
    with tempfile.TemporaryDirectory(prefix="peerloom-aged-") as folder, ExitStack() as stack:
        log = stack.enter_context(open(Path(folder, "log"), "w+b"))
        engines = {name: sa.create_engine(url(name)) for name in COORDINATORS}
        for engine in engines.values():
            stack.callback(engine.dispose)
        _join(url, nodes, log, engines)
        now_s = time.time()
        fill_registry(engines["registry"], days, now_s)
        fill_selector(engines["selector"], days, now_s)
        spec = complete_spec(JobSpec(task="digits", requirements=Requirements(labels=NOWHERE)))
        newest, cut_off = fill_trainer(engines["trainer"], days, now_s, spec)
        services = start_all(url, folder, log, stack)
        _wait_until_followed(engines)
        addresses = {name: service.address for name, service in services.items()}
        with Client(addresses["registry"]) as client:
            ids = {node.name: node.id for node in client.nodes()}
        channels = {
            name: stack.enter_context(grpc.insecure_channel(address)) for name, address in addresses.items()
        }
        yield System(channels, [ids[NAME.format(n)] for n in range(min(nodes, PAGE))], newest, cut_off)


def start_all(url: Url, folder: str, log: IO[bytes], stack: ExitStack) -> dict[str, Service]:
    """A process of each service, which serves, until the stack ends."""
    services: dict[str, Service] = {}
    for name in COORDINATORS:
        registry = services["registry"].address if services else ""
        services[name] = start(name, url, folder, log, registry)
        stack.callback(services[name].stop)
    return services


def start(name: str, url: Url, folder: str, log: IO[bytes], registry: str) -> Service:
    """A process of a service, which serves or stands by."""
    more = ("--registry", registry) if registry else PATIENT
    own = ("--state", f"{folder}/{name}", "--database", url(name), "--log-level", "warning", *more)
    host = LOOPBACK if registry else EVERYWHERE
    return Service(f"peerloom.services.{name}", partial(_listening, own), host, log)


def _listening(own: Sequence[str], listen: str) -> Sequence[str]:
    return ("--listen", listen, *own)


def _join(url: Url, nodes: int, log: IO[bytes], engines: dict[str, sa.Engine]) -> None:
    """Makes the schemas, and lets so many nodes register, whom the selector hears of."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        services = start_all(url, folder, log, stack)
        crowd = Crowd(services["registry"].port, 0, nodes)
        stack.callback(crowd.leave_suddenly)
        since_s = time.monotonic()
        crowd.say("join")
        crowd.answer()
        crowd.say("heard", since_s, FOLLOW_LIMIT_S)
        if len(crowd.answer()) < nodes:
            raise SystemExit(f"error: not all of {nodes:,} nodes were heard within {FOLLOW_LIMIT_S:g} s")
        _wait_until_followed(engines)


def _wait_until_followed(engines: dict[str, sa.Engine]) -> None:
    """Until the selector has read all that the registry has told."""
    newest = sa.text("SELECT max(sequence) FROM events")
    until_s = time.monotonic() + FOLLOW_LIMIT_S
    while True:
        with engines["registry"].connect() as one, engines["selector"].connect() as other:
            told, read = one.scalar(newest), other.scalar(sa.select(tables.cursor.c.sequence))
        if told == read:
            return
        if time.monotonic() > until_s:
            raise SystemExit(f"error: the selector has read {read} of {told} events")
        time.sleep(LOOK_S)
