"""From the SIGKILL of a leader until its standby has answered a call, by what there is in the database."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from benchmarks.aged_calls import CALL_LIMIT_S
from benchmarks.aged_system import Url, start
from benchmarks.chaos.system import COORDINATORS
from benchmarks.crowd_system import Service
from benchmarks.measure import alternate
from peerloom.v1.registry_pb2 import ListInterruptionsRequest
from peerloom.v1.registry_pb2_grpc import RegistryServiceStub
from peerloom.v1.selector_pb2 import ListBeliefsRequest
from peerloom.v1.selector_pb2_grpc import SelectorServiceStub
from peerloom.v1.trainer_pb2 import ListJobsRequest
from peerloom.v1.trainer_pb2_grpc import TrainerServiceStub

# A call of each that asks the database.
_ASK: dict[str, Callable[[grpc.Channel], Any]] = {
    "registry": lambda channel: RegistryServiceStub(channel).ListInterruptions(
        ListInterruptionsRequest(), timeout=CALL_LIMIT_S
    ),
    "selector": lambda channel: SelectorServiceStub(channel).ListBeliefs(
        ListBeliefsRequest(), timeout=CALL_LIMIT_S
    ),
    "trainer": lambda channel: TrainerServiceStub(channel).ListJobs(ListJobsRequest(), timeout=CALL_LIMIT_S),
}


def takeovers(old: Url, empty: Url, rounds: int) -> dict[str, tuple[list[float], list[float]]]:
    """Seconds of each takeover of each service, over the one and over the other database, in turn."""
    with _replicas(old) as aged, _replicas(empty) as young:
        return {
            name: alternate(rounds, partial(aged.take_over, name), partial(young.take_over, name))
            for name in COORDINATORS
        }


class _Replicas:
    """Two processes of each service on one database; the first of each pair leads."""

    def __init__(self, url: Url, folder: str, log: IO[bytes], stack: ExitStack) -> None:
        self._pairs: dict[str, list[Service]] = {}
        registry = ""
        for name in COORDINATORS:
            pair = self._pairs[name] = []
            for _ in range(2):
                pair.append(start(name, url, folder, log, registry))
                stack.callback(pair[-1].stop)
                _wait_until_serves(pair[0].address)
            if name == "registry":
                registry = ",".join(one.address for one in pair)

    def take_over(self, name: str) -> float:
        """Kills the leader; in seconds, until the other one has answered. Then the lost one stands by."""
        leader, standby = self._pairs[name]
        with grpc.insecure_channel(standby.address) as channel:
            statuses = _statuses(channel)
            if next(statuses) == HealthCheckResponse.SERVING:
                raise SystemExit(f"error: two of the {name} serve")
            begin_s = time.perf_counter()
            leader.kill()
            while next(statuses) != HealthCheckResponse.SERVING:
                pass
            _ASK[name](channel)
            took_s = time.perf_counter() - begin_s
        leader.start()
        self._pairs[name] = [standby, leader]
        return took_s


@contextmanager
def _replicas(url: Url) -> Iterator[_Replicas]:
    with tempfile.TemporaryDirectory(prefix="peerloom-aged-") as folder, ExitStack() as stack:
        log = stack.enter_context(open(Path(folder, "log"), "w+b"))
        yield _Replicas(url, folder, log, stack)


def _statuses(channel: grpc.Channel) -> Iterator[int]:
    """What its health says now, and whenever that changes."""
    for answer in HealthStub(channel).Watch(HealthCheckRequest(), timeout=CALL_LIMIT_S):
        yield answer.status


def _wait_until_serves(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        if HealthCheckResponse.SERVING not in _statuses(channel):
            raise SystemExit(f"error: {address} ended before it served")
