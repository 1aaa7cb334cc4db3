"""Asks a testbed's control plane, through the doorway, how things are."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import grpc

from peerloom.admission.join_string import JoinString
from peerloom.embedded.health import Prober, Seen, not_ready
from peerloom.errors import UnavailableError
from peerloom.kit.principal import Role
from peerloom.testbed.doorway import address_of
from peerloom.testbed.plan import Plan
from peerloom.testbed.programs import AGENT_PORT, PORTS
from peerloom.testbed.traffic import Traffic
from peerloom.v1.admission_pb2 import CreateTokenRequest
from peerloom.v1.admission_pb2_grpc import AdmissionServiceStub
from peerloom.v1.registry_pb2 import ListNodesRequest, Node, NodeState
from peerloom.v1.registry_pb2_grpc import RegistryServiceStub
from peerloom.v1.selector_pb2 import ListBeliefsRequest
from peerloom.v1.selector_pb2_grpc import SelectorServiceStub
from peerloom.v1.trainer_pb2 import (
    JobState,
    LinkTraffic,
    ListJobsRequest,
    NetworkTraffic,
    RecordJobTrafficRequest,
)
from peerloom.v1.trainer_pb2_grpc import TrainerServiceStub

_ANSWER_S = 2.0
_LONG_S = 20.0  # for what is asked once
_ENDED = (
    JobState.JOB_STATE_SUCCEEDED,
    JobState.JOB_STATE_FAILED,
    JobState.JOB_STATE_CANCELLED,
    JobState.JOB_STATE_NO_COMPUTE,
)


@dataclass(frozen=True)
class HostState:
    """What the control plane holds of a host: the registry's state and reason, the selector's belief.

    `state` is "unknown" for a host that never registered; `belief` is None when the selector has none.
    """

    name: str
    state: str
    reason: str
    belief: float | None


class ControlPlane:
    """Open lines to registry, selector and trainer; a context manager that closes them.

    `folder` has the doorway's sockets; `identity` is the operator's file, None for a testbed without a door.
    """

    def __init__(self, folder: Path, identity: Path | None) -> None:
        self._addresses = {name: address_of(folder, name) for name in PORTS}
        self._prober = Prober(identity)

    def missing(self, plan: Plan) -> list[str]:
        """What is not ready yet, a phrase each; empty when all hosts are registered."""
        ask = self._addresses
        unhealthy = [name for name, address in ask.items() if self._prober.health(address) != "SERVING"]
        seen = Seen(
            unhealthy=tuple(unhealthy),
            nodes=tuple(self._prober.nodes(ask["registry"])),
            services=tuple(self._prober.services(ask["registry"])),
            selectable=self._prober.selectable(ask["selector"]),
        )
        return not_ready(_addresses_of(plan, seen.nodes), seen)

    def hosts(self, plan: Plan) -> list[HostState]:
        """All hosts with what is known of them; "unknown" throughout when the registry doesn't answer."""
        states, beliefs = self._states(), self._beliefs()
        found = []
        for host in plan.hosts:
            state, reason = states.get(host.name, ("unknown", ""))
            found.append(HostState(host.name, state, reason, beliefs.get(host.name)))
        return found

    def jobs(self) -> dict[str, bool]:
        """The newest jobs by id, and whether each has ended; none when the trainer doesn't answer."""
        stub = TrainerServiceStub(self._channel("trainer"))
        try:
            jobs = stub.ListJobs(ListJobsRequest(page_size=100), timeout=_ANSWER_S).jobs
        except grpc.RpcError:
            return {}
        return {job.job_id: job.state in _ENDED for job in jobs}

    def record_traffic(self, job_id: str, traffic: Traffic) -> bool:
        """Puts what a job's network carried into its record; False when the trainer doesn't take it."""
        message = NetworkTraffic(
            backend=traffic.backend,
            medium=traffic.medium,
            seconds=traffic.seconds,
            lag_worst_s=traffic.lag_worst_s,
            lag_bound_s=traffic.lag_bound_s,
            links=[LinkTraffic(**asdict(link)) for link in traffic.links],
        )
        stub = TrainerServiceStub(self._channel("trainer"))
        try:
            stub.RecordJobTraffic(RecordJobTrafficRequest(job_id=job_id, traffic=message), timeout=_LONG_S)
        except grpc.RpcError:
            return False
        return True

    def _states(self) -> Mapping[str, tuple[str, str]]:
        stub = RegistryServiceStub(self._channel("registry"))
        try:
            nodes = stub.ListNodes(ListNodesRequest(page_size=1000), timeout=_ANSWER_S).nodes
        except grpc.RpcError:
            return {}
        return {
            node.spec.name: (
                NodeState.Name(node.state).removeprefix("NODE_STATE_").lower(),
                node.state_reason,
            )
            for node in nodes
        }

    def _beliefs(self) -> Mapping[str, float]:
        stub = SelectorServiceStub(self._channel("selector"))
        try:
            beliefs = stub.ListBeliefs(ListBeliefsRequest(page_size=1000), timeout=_ANSWER_S).beliefs
        except grpc.RpcError:
            return {}
        return {belief.name: belief.belief for belief in beliefs}

    def make_token(self, role: Role, owner: str, node_id: str) -> str:
        """The string of a token; `node_id` is that of a node that was admitted before, or "".

        Raises UnavailableError when the registry makes none.
        """
        stub = AdmissionServiceStub(self._channel("registry"))
        request = CreateTokenRequest(role=role, owner=owner, name=node_id)
        try:
            made = stub.CreateToken(request, timeout=_LONG_S)
        except grpc.RpcError as error:
            raise UnavailableError(f"The registry made no token for {owner}: {error}") from error
        return str(JoinString(made.token_id, made.secret, made.authority_sha256, made.join_address))

    def _channel(self, name: str) -> grpc.Channel:
        return self._prober.channel(self._addresses[name])

    def close(self) -> None:
        """Closes all lines."""
        self._prober.__exit__()

    def __enter__(self) -> "ControlPlane":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _addresses_of(plan: Plan, nodes: Sequence[Node]) -> dict[str, str]:
    # A host behind NAT is reached at its relay, wherever that lets it in.
    relayed = {node.spec.name: node.spec.address for node in nodes if node.spec.via}
    services = {name: f"{plan.control.address}:{port}" for name, port in PORTS.items()}
    # `not_ready` knows a node by its name's beginning, since an embedded system names them so.
    agents = {f"node-{host.name}": f"{host.address}:{AGENT_PORT}" for host in plan.hosts}
    agents |= {f"node-{host.name}": relayed.get(host.name, "") for host in plan.hosts if host.nat}
    return {**services, **agents}
