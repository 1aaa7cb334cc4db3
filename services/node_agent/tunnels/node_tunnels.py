"""The node's way in, and what it gives to others as a relay, put together."""

from dataclasses import dataclass
from functools import partial

from peerloom.kit.dialing import Dialer
from peerloom.kit.directory import Directory
from peerloom.kit.server import Server
from peerloom.services.node_agent.artifact_exchange import ArtifactPart
from peerloom.services.node_agent.config import NodeConfig
from peerloom.services.node_agent.membership.node_status import NodeStatus
from peerloom.services.node_agent.membership.reachability import local_host
from peerloom.services.node_agent.tunnels.relay_server import RelayServer
from peerloom.services.node_agent.tunnels.way_in import WayIn
from peerloom.v1.registry_pb2 import NodeSpec


@dataclass(frozen=True)
class NodeTunnels:
    """`relay` is None where the owner offers none."""

    way_in: WayIn
    relay: RelayServer | None

    def start(self, server: Server) -> None:
        """Runs both as tasks of the server."""
        server.start_task("way in", self.way_in.keep)
        if self.relay is not None:
            server.start_task("relay", self.relay.keep)
            server.start_task("end of tunnels", partial(_end, self.relay, server))


def open_tunnels(
    config: NodeConfig,
    spec: NodeSpec,
    listening: str,
    dialer: Dialer,
    directory: Directory,
    status: NodeStatus,
    artifacts: ArtifactPart,
) -> NodeTunnels:
    """For a node whose services listen at `listening`. Raises UnavailableError when a relay can't listen."""
    bulk, registry = artifacts.exchange.bulk, directory.registry
    own_host = listening.rpartition(":")[0].strip("[]")
    way_in = WayIn(spec.name, spec.address, local_host(own_host), registry, dialer, status, bulk)
    if not config.relay:
        return NodeTunnels(way_in, None)
    host, told_host = config.listen.rpartition(":")[0], spec.address.rpartition(":")[0]
    return NodeTunnels(way_in, RelayServer(host, told_host, config.relay_limits()))


async def _end(relay: RelayServer, server: Server) -> None:
    # Streams without an end would hold up the process's stop.
    await server.stopping.wait()
    relay.close()
