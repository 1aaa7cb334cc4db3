"""Which of the ways to sum a method takes."""

from peerloom.kit.logs import get_logger
from peerloom.kit.sync_method import DOUBLING, HIERARCHY, SyncMethod
from peerloom.kit.sync_servers import server_ranks
from peerloom.worker.sync import Collectives, SyncTraffic
from peerloom.worker.sync.direct import DirectExchange
from peerloom.worker.sync.doubling import DoublingSumming
from peerloom.worker.sync.hierarchy import HierarchySumming
from peerloom.worker.sync.residuals import Residuals
from peerloom.worker.sync.summing import OwnerSumming, RingSumming, Summing

_log = get_logger()


def summing_of(
    collectives: Collectives, traffic: SyncTraffic, method: SyncMethod, residuals: Residuals
) -> Summing:
    """The summing of one generation, whose bytes are added to `traffic`; `residuals` are this rank's."""
    if method.topology == DOUBLING:
        return DoublingSumming(collectives, traffic, method)
    if method.topology == HIERARCHY:
        return HierarchySumming(collectives, traffic, method, residuals)
    if method.needs_mesh:
        _tell_servers(collectives, method)
        return OwnerSumming(DirectExchange(collectives, traffic), method, residuals)
    return RingSumming(collectives, traffic, method)


def _tell_servers(collectives: Collectives, method: SyncMethod) -> None:
    nodes, named = collectives.node_ids, method.server_nodes
    if method.servers > len(nodes):
        _log.info("servers_bounded", asked=method.servers, ranks=len(nodes))
    if not named:
        return
    absent = sorted(set(named).difference(nodes))
    servers = server_ranks(method.servers, named, nodes)
    told = {"servers": servers, "rank": collectives.rank, "absent": absent}
    if set(named).isdisjoint(nodes):
        reason = "none of the nodes that the job names is in this generation, so all ranks hold parts"
        _log.warning("servers_absent", reason=reason, **told)
    else:
        _log.info("servers_found", **told)
