"""Which of the ways to sum a method takes."""

from peerloom.kit.sync_method import DOUBLING, HIERARCHY, SyncMethod
from peerloom.worker.sync import Collectives, SyncTraffic
from peerloom.worker.sync.direct import DirectExchange
from peerloom.worker.sync.doubling import DoublingSumming
from peerloom.worker.sync.hierarchy import HierarchySumming
from peerloom.worker.sync.residuals import Residuals
from peerloom.worker.sync.summing import OwnerSumming, RingSumming, Summing


def summing_of(
    collectives: Collectives, traffic: SyncTraffic, method: SyncMethod, residuals: Residuals
) -> Summing:
    """The summing of one generation, whose bytes are added to `traffic`; `residuals` are this rank's."""
    if method.topology == DOUBLING:
        return DoublingSumming(collectives, traffic, method)
    if method.topology == HIERARCHY:
        return HierarchySumming(collectives, traffic, method, residuals)
    if method.needs_mesh:
        return OwnerSumming(DirectExchange(collectives, traffic), method, residuals)
    return RingSumming(collectives, traffic, method)
