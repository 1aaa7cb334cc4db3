"""How fast calls are after a year of a thousand nodes, beside a system of as many nodes that is a day old.

Run by `make bench-aged`, on SQLite and on PostgreSQL (PEERLOOM_TEST_DATABASE names one, by the URL of a user
who may create databases). The nodes are registered by real agents' code; then both databases are given what
so many days leave there (aged_rows.py), and the services of both start. Each call is timed in turn at both;
pages are no longer than a day fills. NODES and DAYS name other numbers, for trying with --quick.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import grpc
import sqlalchemy as sa

from benchmarks.aged_rows import fill_registry, fill_selector, fill_trainer
from benchmarks.crowd_system import Crowd, Service
from benchmarks.measure import Goal, Measurement, measurement
from benchmarks.new_database import new_postgresql
from peerloom import Client
from peerloom.services.selector import tables
from peerloom.v1 import registry_pb2, selector_pb2, trainer_pb2
from peerloom.v1.registry_pb2_grpc import RegistryServiceStub
from peerloom.v1.selector_pb2_grpc import SelectorServiceStub
from peerloom.v1.trainer_pb2_grpc import TrainerServiceStub

NODES, YEAR, CALLS, WARM_UP = 1_000, 365, 300, 10
QUICK_NODES, QUICK_DAYS, QUICK_CALLS = 20, 10, 20
COORDINATORS = ("registry", "selector", "trainer")
GOAL = Goal(2.0, at_least=False, of_ratio=True)
CALL_LIMIT_S, FOLLOW_LIMIT_S, LOOK_S = 60.0, 120.0, 0.2
EVERYWHERE, LOOPBACK = "0.0.0.0", "127.0.0.1"  # agents dial another address of loopback each
# Nobody beats while calls are timed: the registry is to wait for them.
PATIENT = ("--restart-grace-s", "36000", "--allow-plain", "--log-level", "warning")
Url = Callable[[str], str]  # of the database of a service
Call = Callable[[int], object]


def run(quick: bool) -> list[Measurement]:
    """Both engines, one after the other."""
    nodes = int(os.environ.get("NODES") or (QUICK_NODES if quick else NODES))
    days = int(os.environ.get("DAYS") or (QUICK_DAYS if quick else YEAR))
    found = []
    for engine, database in (("SQLite", _sqlite), ("PostgreSQL", _postgresql)):
        with database() as young, database() as old:
            found += _compared(engine, young, old, nodes, days, QUICK_CALLS if quick else CALLS)
    return found


def profile(quick: bool) -> str:
    """None: a call that got slower is to be looked at by its query's plan."""
    return ""


def _compared(engine: str, young: Url, old: Url, nodes: int, days: int, calls: int) -> list[Measurement]:
    with ExitStack() as stack:
        both = [stack.enter_context(_system(url, nodes, of)) for url, of in ((young, 1), (old, days))]
        title = f"{engine}, {nodes:,} nodes: {{}} after {days} days beside one day"
        return [_timed(title.format(name), calls, *(one[name] for one in both)) for name in both[0]]


def _timed(title: str, calls: int, young: Call, old: Call) -> Measurement:
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(WARM_UP + calls):  # the first ones open files and fill caches
        for call, times in zip((old, young), taken, strict=True):
            begin_s = time.perf_counter()
            call(number)
            if number >= WARM_UP:
                times.append(1000 * (time.perf_counter() - begin_s))
    print(f"   {title}", flush=True)
    ours, rival = taken
    return measurement(title, "ms", ours, statistic="p95", goal=GOAL, rival="one day", rival_samples=rival)


@contextmanager
def _system(url: Url, nodes: int, days: int) -> Iterator[dict[str, Call]]:
    """A system of that age; its calls, by what they are."""
    with tempfile.TemporaryDirectory(prefix="peerloom-aged-") as folder, ExitStack() as stack:
        log = stack.enter_context(open(Path(folder, "log"), "w+b"))
        engines = {name: sa.create_engine(url(name)) for name in COORDINATORS}
        for engine in engines.values():
            stack.callback(engine.dispose)
        _join(url, nodes, log, engines)
        now_s = time.time()
        fill_registry(engines["registry"], days, now_s)
        fill_selector(engines["selector"], days, now_s)
        newest = fill_trainer(engines["trainer"], days, now_s)
        services = _started(url, folder, log, stack)
        _wait_until_followed(engines)
        addresses = {name: service.address for name, service in services.items()}
        with Client(addresses["registry"]) as client:
            ids = {node.name: node.id for node in client.nodes()}
        channels = {
            name: stack.enter_context(grpc.insecure_channel(address)) for name, address in addresses.items()
        }
        yield _calls(channels, ids, newest)


def _join(url: Url, nodes: int, log: IO[bytes], engines: dict[str, sa.Engine]) -> None:
    """Makes the schemas, and lets so many nodes register, whom the selector hears of."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        services = _started(url, folder, log, stack)
        crowd = Crowd(services["registry"].port, 0, nodes)
        stack.callback(crowd.leave_suddenly)
        since_s = time.monotonic()
        crowd.say("join")
        crowd.answer()
        crowd.say("heard", since_s, FOLLOW_LIMIT_S)
        if len(crowd.answer()) < nodes:
            raise SystemExit(f"error: not all of {nodes:,} nodes were heard within {FOLLOW_LIMIT_S:g} s")
        _wait_until_followed(engines)


def _started(url: Url, folder: str, log: IO[bytes], stack: ExitStack) -> dict[str, Service]:
    services: dict[str, Service] = {}
    for name in COORDINATORS:
        more = PATIENT if name == "registry" else ("--registry", services["registry"].address)
        own = ("--state", f"{folder}/{name}", "--database", url(name), *more)
        host = EVERYWHERE if name == "registry" else LOOPBACK
        services[name] = Service(f"peerloom.services.{name}", partial(_listening, own), host, log)
        stack.callback(services[name].stop)
    return services


def _listening(own: Sequence[str], listen: str) -> Sequence[str]:
    return ("--listen", listen, *own)


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


def _calls(channels: dict[str, grpc.Channel], ids: dict[str, str], job_id: str) -> dict[str, Call]:
    """What users and services ask, of nodes, whose `ids` are by name, in turn, and of the newest job."""
    registry = RegistryServiceStub(channels["registry"])
    selector = SelectorServiceStub(channels["selector"])
    trainer = TrainerServiceStub(channels["trainer"])
    names, run = list(ids), os.urandom(4).hex()

    def name(number: int) -> str:
        return names[number * 37 % len(names)]

    def reported(number: int) -> object:
        one = selector_pb2.Evidence(
            evidence_id=f"{run}-{number}",
            node_id=ids[name(number)],
            kind=selector_pb2.EVIDENCE_KIND_TRAINING,
        )
        one.time.GetCurrentTime()
        return _ask(selector.ReportEvidence, selector_pb2.ReportEvidenceRequest(evidence=[one]))

    r, s, t = registry_pb2, selector_pb2, trainer_pb2
    return {
        "GetNode": lambda n: _ask(registry.GetNode, r.GetNodeRequest(node=name(n))),
        "ListNodes": lambda n: _ask(registry.ListNodes, r.ListNodesRequest()),
        "ListSessions": lambda n: _ask(
            registry.ListSessions, r.ListSessionsRequest(node=name(n), page_size=2)
        ),
        "ListInterruptions": lambda n: _ask(registry.ListInterruptions, r.ListInterruptionsRequest()),
        "SelectNodes": lambda n: _ask(selector.SelectNodes, s.SelectNodesRequest(request_budget=10)),
        "GetBelief": lambda n: _ask(selector.GetBelief, s.GetBeliefRequest(node=name(n))),
        "ListBeliefs": lambda n: _ask(selector.ListBeliefs, s.ListBeliefsRequest()),
        "ListBeliefHistory": lambda n: _ask(
            selector.ListBeliefHistory, s.ListBeliefHistoryRequest(node=name(n), page_size=5)
        ),
        "ReportEvidence": reported,
        "GetJob": lambda n: _ask(trainer.GetJob, t.GetJobRequest(job_id=job_id)),
        "ListJobs": lambda n: _ask(trainer.ListJobs, t.ListJobsRequest()),
        "ListModels": lambda n: _ask(trainer.ListModels, t.ListModelsRequest()),
        "WatchJob": lambda n: list(trainer.WatchJob(t.WatchJobRequest(job_id=job_id), timeout=CALL_LIMIT_S)),
    }


def _ask(method: Any, request: Any) -> Any:
    return method(request, timeout=CALL_LIMIT_S)


@contextmanager
def _sqlite() -> Iterator[Url]:
    with tempfile.TemporaryDirectory(prefix="peerloom-aged-") as folder:
        yield lambda name: f"sqlite:///{folder}/{name}.sqlite"


@contextmanager
def _postgresql() -> Iterator[Url]:
    with new_postgresql() as url:
        yield lambda name: url
