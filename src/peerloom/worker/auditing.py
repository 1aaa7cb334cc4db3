"""Audits: this worker computes a share of another one again, and tells the trainer of a difference.

When, and whom, is drawn by a coin that all ranks throw together once each has sent its gradient, besides what
the trainer orders: all audit in the same steps, so that the group waits for them once. A worker begins with
its own share: who can't repeat that accuses nobody.
"""

import threading
import time
from collections.abc import Callable, Sequence

import torch

from peerloom.kit.audit_rules import (
    TOLERANCE,
    audit_cost,
    audit_rate,
    first_targets,
    is_audited,
    partner,
    targets,
)
from peerloom.kit.logs import get_logger
from peerloom.v1.trainer_pb2 import (
    OrderAudits,
    WorkerAccusation,
    WorkerRefusal,
    WorkerSessionRequest,
    WorkerUnrepeatable,
)
from peerloom.worker.group.process_group import Group
from peerloom.worker.step_chance import has_drawn_on_gpu, kept_chance
from peerloom.worker.step_share import share_of
from peerloom.worker.sync import Synchroniser
from peerloom.worker.sync.bucket_layout import Gradients
from peerloom.worker.sync.robust.exchange import RobustReduce
from peerloom.worker.sync.robust.recomputing import difference, gradients_of, norm_of
from peerloom.worker.training import Training

_log = get_logger()
Say = Callable[[WorkerSessionRequest], None]


class Auditor:
    """What a worker keeps of its audits over a job's generations; `say` reaches the trainer."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.made = 0
        self.audit_s = 0.0
        self.why_not = ""  # this worker can't repeat even its own share
        self.largest = 0.0  # norm of the parts of gradients that were computed here
        self._steps_with: dict[str, int] = {}  # that were made with a node
        self._ordered: dict[str, int] = {}
        self._lock = threading.Lock()

    def order(self, order: OrderAudits) -> None:
        """The trainer wants a node audited in each of the next steps. Any thread may call it."""
        with self._lock:
            self._ordered[order.node_id] = max(order.steps, self._ordered.get(order.node_id, 0))

    def take_orders(self) -> set[str]:
        """The nodes that are to be audited in this step."""
        with self._lock:
            nodes = set(self._ordered)
            self._ordered = {node: left - 1 for node, left in self._ordered.items() if left > 1}
        return nodes

    def note_step(self, nodes: Sequence[str]) -> int:
        """A step is made with these nodes: how many were before, with the one that came last."""
        before = [self._steps_with.get(node, 0) for node in nodes]
        self._steps_with.update((node, steps + 1) for node, steps in zip(nodes, before, strict=True))
        return min(before, default=0)

    def begin(self, training: Training, group: Group, sync: Synchroniser) -> "Audits":
        """The audits of one generation; none where the trainer wants none, or `sync` isn't robust."""
        kept = sync if isinstance(sync, RobustReduce) and group.audits else None
        return Audits(self, training, group, kept)

    def say_refused(self, group: Group, step: int, ranks: Sequence[int]) -> None:
        """Tells that what these ranks sent in a step (from 0) isn't finite."""
        nodes = dict.fromkeys(group.node_ids[rank] for rank in ranks)
        refusal = WorkerRefusal(generation=group.generation, step=step + 1, node_ids=list(nodes))
        self.say(WorkerSessionRequest(refusal=refusal))


class Audits:
    """One generation's audits: `choose` before a step's forward pass, `make` before its update."""

    def __init__(self, auditor: Auditor, training: Training, group: Group, sync: RobustReduce | None) -> None:
        self._auditor = auditor
        self._training = training
        self._group = group
        self._sync = sync
        self._model = training.state.model
        self._targets: list[int] = []
        self._has_checked = False
        self._keeps = False  # what is needed to audit the step
        self._buffers: dict[str, torch.Tensor] = {}
        self._hook = self._model.register_forward_pre_hook(self._keep_buffers) if sync else None

    def close(self) -> None:
        """The generation is over."""
        if self._hook is not None:
            self._hook.remove()
        self._sync = None

    def choose(self, counts: Sequence[int]) -> None:
        """Before a step: whose share is audited whatever the coin says; `counts` are the ranks' samples."""
        if self._sync is not None:
            self._keeps = not self._auditor.why_not
            self._targets = self._known(counts) if self._keeps else []
            self._sync.keep(self._keeps)

    def make(self, step: int, counts: Sequence[int]) -> float:
        """Audits the step (from 0) whose gradients were just exchanged; returns the seconds it took.

        Nothing of the training is changed. Raises what the task raises.
        """
        if self._sync is None or not self._keeps:
            return 0.0
        start_s = time.perf_counter()
        for rank in dict.fromkeys(self._targets + self._drawn(self._sync.thrown, counts)):
            if not self._auditor.why_not:
                self._audit(self._sync, step, counts, rank)
        self._targets = []
        self._keeps = False
        self._sync.keep(False)
        self._buffers.clear()
        audit_s = time.perf_counter() - start_s
        self._auditor.audit_s += audit_s
        return audit_s

    def _known(self, counts: Sequence[int]) -> list[int]:
        group = self._group
        if not self._has_checked:
            drawn = first_targets(group.rank, group.owners, counts)
            self._has_checked = bool(drawn)
            return drawn
        ordered = self._auditor.take_orders()
        others = targets(group.rank, group.owners, counts)
        return [rank for rank in others if group.node_ids[rank] in ordered]

    def _drawn(self, coin: bytes | None, counts: Sequence[int]) -> list[int]:
        group = self._group
        others = targets(group.rank, group.owners, counts)
        if not (others and counts[group.rank]):
            return []
        before = self._auditor.note_step([group.node_ids[rank] for rank in others])
        rate = audit_rate(before, audit_cost(tuple(group.owners), tuple(counts)))
        if coin is None or not is_audited(coin, rate):
            return []
        return partner(group.rank, group.owners, counts, coin)

    def _keep_buffers(self, model: torch.nn.Module, _: object) -> None:
        # Here DDP has sent those of rank 0 to all, and the forward pass has not changed them yet.
        if self._keeps and not self._buffers:
            self._buffers = {name: value.clone() for name, value in model.named_buffers()}

    def _audit(self, sync: RobustReduce, step: int, counts: Sequence[int], rank: int) -> None:
        said = sync.said_by(rank)
        computed = self._compute(sync, step, counts, rank)
        if not all(bool(part.isfinite().all()) for part in (*said, *computed)):
            return  # a training that diverges is no lie
        auditor = self._auditor
        auditor.largest = max(auditor.largest, norm_of(computed))
        apart = difference(said, computed, auditor.largest)
        is_own = rank == self._group.rank
        auditor.made += not is_own
        if apart <= TOLERANCE:
            return
        if is_own:
            self._give_up(f"its own share of a batch came out {apart:.2g} apart when it was computed again")
        elif difference(self._compute(sync, step, counts, rank), computed, auditor.largest) > TOLERANCE:
            self._give_up(f"the share of rank {rank}, computed here twice, came out different")
        else:
            self._accuse(step, rank, apart)

    def _compute(self, sync: RobustReduce, step: int, counts: Sequence[int], rank: int) -> list[torch.Tensor]:
        training = self._training
        share = share_of(training, step, counts, rank)
        with kept_chance(training.device):
            found: Gradients = gradients_of(
                self._model, self._buffers, lambda forward: share.loss(training, forward)
            )
            if has_drawn_on_gpu(training.device, share.seed(training)):
                self._give_up("it draws random numbers on a GPU, and those depend on the GPU's model")
        return sync.part_of(found, self._group.rank)

    def _accuse(self, step: int, rank: int, apart: float) -> None:
        group = self._group
        node_id = group.node_ids[rank]
        _log.warning("share_differs", step=step + 1, rank=rank, node=node_id, difference=apart)
        accusation = WorkerAccusation(
            generation=group.generation, step=step + 1, node_id=node_id, difference=apart
        )
        self._auditor.say(WorkerSessionRequest(accusation=accusation))

    def _give_up(self, reason: str) -> None:
        self._auditor.why_not = reason
        _log.warning("audits_given_up", reason=reason)
        said = WorkerUnrepeatable(generation=self._group.generation, reason=reason)
        self._auditor.say(WorkerSessionRequest(unrepeatable=said))
