"""How local gradients become one update: one small interface, one module a way.

The loss that a worker differentiates is the sum over its own samples divided by the whole batch, so the
gradient of the unsplit batch is the plain SUM of the workers' gradients, however unequal their shares.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
import torch.distributed as dist

from peerloom.kit.robust_rules import OFF
from peerloom.kit.sync_method import SyncMethod
from peerloom.worker.batches import Nest
from peerloom.worker.sync.robust.common_coin import CommonCoin

if TYPE_CHECKING:
    from peerloom.worker.mesh.mesh import Mesh
    from peerloom.worker.sync.residuals import Residuals

TensorFuture = torch.futures.Future[torch.Tensor | str]


@dataclass
class SyncTraffic:
    """What communication costs, summed up since the start.

    Bytes that this rank sends to others, and seconds that computing did not hide.
    """

    bytes: int = 0
    exposed_s: float = 0.0

    def add_all_reduce(self, summed_bytes: int, ranks: int) -> None:
        """Counts a ring's: each of n ranks sends all of n parts but one to its next, twice."""
        self.bytes += 2 * (ranks - 1) * summed_bytes // ranks

    def add(self, other: "SyncTraffic") -> None:
        """Counts what another communication has cost, too."""
        self.bytes += other.bytes
        self.exposed_s += other.exposed_s


class Collectives(Protocol):
    """Makes waits for collectives end with their group, at once; knows who owns the node of each rank."""

    @property
    def rank(self) -> int:
        """This worker's place among them."""

    @property
    def mesh(self) -> "Mesh | None":
        """The connections from each to each, where the group has them."""

    @property
    def world_size(self) -> int:
        """How many ranks there are."""

    @property
    def owners(self) -> Sequence[str]:
        """The owner of each rank's node."""

    @property
    def node_ids(self) -> Sequence[str]:
        """The node of each rank."""

    @property
    def process_group(self) -> dist.ProcessGroup:
        """For DDP, which starts some collectives by itself; waits for those end with the group too."""

    def follow(self, work: dist.Work | None) -> TensorFuture:
        """A future of a collective's tensor, or of the reason why there is none."""

    def result(self, future: TensorFuture) -> torch.Tensor:
        """Waits for the tensor. Raises RuntimeError when a peer is lost, or the group's own error."""


class Synchroniser(Protocol):
    """One way to turn local gradients into one update."""

    traffic: SyncTraffic

    def forward(self, inputs: Nest) -> Nest:
        """The model's outputs for this worker's share of the batch."""

    def backward(self, loss: torch.Tensor, counts: Sequence[int]) -> float:
        """Leaves the whole batch's gradient in `.grad`; returns the whole batch's mean loss.

        `loss` is this worker's part of the batch's mean loss, `counts` how many of its samples each rank has.
        Raises what `Collectives.result` does.
        """

    def close(self) -> None:
        """Takes its hooks off the model."""


def synchroniser(
    model: torch.nn.Module,
    collectives: Collectives,
    method: SyncMethod,
    residuals: "Residuals",
    robust: str = OFF,
    on_refused: Callable[[Sequence[int]], None] = lambda ranks: None,
    coin: CommonCoin | None = None,
) -> Synchroniser:
    """The synchronisation for a group; `robust` as in `kit.robust_rules`, `residuals` this rank's.

    With all but `off`, `on_refused` hears of ranks whose gradients aren't finite, and a `coin`, if all have
    one, is thrown with each step.
    """
    from peerloom.worker.sync.all_reduce import AllReduce
    from peerloom.worker.sync.alone import Alone
    from peerloom.worker.sync.robust.exchange import RobustReduce
    from peerloom.worker.sync.scheduled import ScheduledReduce

    if collectives.world_size == 1:
        return Alone(model)
    if robust != OFF:
        return RobustReduce(model, collectives.owners, robust, collectives, on_refused, coin)
    if method == SyncMethod():
        return AllReduce(model, collectives, residuals)
    return ScheduledReduce(model, collectives, method, residuals)
