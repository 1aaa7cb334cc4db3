"""The next step's forward pass, begun while a step's sums still come: each layer waits for its own.

So communication hides behind forward passes too (ByteScheduler: Peng et al., SOSP 2019). It is each rank's
own affair: the messages are the same, and so are all bits. A step is committed when all its sums are there.
What breaks before undoes the parameters that it has changed until then, and the step is made again.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from peerloom.kit.logs import get_logger
from peerloom.kit.sync_method import CUT
from peerloom.worker.group.process_group import Group
from peerloom.worker.joining.participants import Joining
from peerloom.worker.schedule import split_batch
from peerloom.worker.step_share import StepShare, share_of
from peerloom.worker.sync import Synchroniser
from peerloom.worker.sync.coming_sum import ComingSum
from peerloom.worker.sync.scheduled import ScheduledReduce
from peerloom.worker.task_checks import check_all_used
from peerloom.worker.training import Training
from peerloom.worker.updating.partwise_update import PartwiseUpdate, SavedValues

# torch's DDP cuts its buckets anew before the second forward pass, which has to find the first step's done.
PASSES_BEFORE = 2
TIMES_FREE = 4  # of a copy of the state: others on the node may take memory for theirs at the same moment
_VIEWS = ("T", "mT", "H", "mH", "data", "real")  # attributes of tensors that have their values
_log = get_logger()


@dataclass(frozen=True, eq=False)
class NextShare:
    """A rank's share of the next step, if the ranks have `counts` samples of it."""

    share: StepShare
    counts: list[int]


@dataclass(frozen=True, eq=False)
class PassAhead:
    """A forward pass that is made, and what it makes the rank's part of the loss."""

    of: NextShare
    part: Tensor


class ForwardAhead:
    """One generation's passes ahead. Who can't make them waits for a step's sums, and begins then.

    They aren't made where a newcomer catches up, over an epoch's end, and where nothing would be won, as the
    schedule doesn't have the first layers' sums come first.
    """

    def __init__(self, training: Training, sync: Synchroniser) -> None:
        self._training = training
        self._sync = sync if isinstance(sync, ScheduledReduce) and training.sync.schedule == CUT else None
        self._saved = SavedValues()
        self._update: PartwiseUpdate | None = None  # of a step whose sums are all there
        self._ahead: PassAhead | None = None
        self._passes = 0
        self._is_roomy = False
        if self._sync is not None and (why_whole := training.why_whole):
            self._wait(why_whole)

    def part_of(self, step: int, counts: Sequence[int]) -> Tensor | None:
        """This rank's part of the step's loss, if its forward pass was made ahead, for the same counts."""
        ahead, self._ahead = self._ahead, None
        self._passes += 1
        if ahead is None or (ahead.of.share.step, ahead.of.counts) != (step, list(counts)):
            return None
        return ahead.part

    def next_share(self, joining: Joining, shares: Sequence[int], rank: int) -> NextShare | None:
        """This rank's share of the step after this one, if its forward pass may begin ahead.

        It counts with these shares of the ranks, which may yet be others then.
        """
        training, step = self._training, joining.step + 1
        if self._sync is None or self._passes < PASSES_BEFORE or training.is_timed or joining.newcomers:
            return None
        if step % training.schedule.steps_per_epoch == 0 or not self._has_room():
            return None
        counts = split_batch(
            training.schedule.samples_in(range(step, step + 1)), shares, training.least_samples
        )
        return NextShare(share_of(training, step, counts, rank), counts)

    def backward(self, part: Tensor, following: NextShare, group: Group) -> float:
        """As a synchroniser's, with the next forward pass of this rank: the parameters are updated already.

        The group was whole when the last sum came. Raises what `Group.result` does; nothing is changed then.
        """
        assert self._sync is not None, "there is a share"
        sums = self._sync.send(part)
        check_all_used(self._training.task, self._training.state.model)
        update = PartwiseUpdate(self._training.state.updater.stepping, self._saved)
        layers = LayerwiseSums(sums, update, self._sync, group.check)
        try:
            part = following.share.walk(self._training, layers.forward, self._training.state.updater)
        except BaseException:
            update.undo()
            raise
        if layers.unseen:
            self._wait("a parameter isn't given to a function of torch in the forward pass")
        self._update = update
        self._ahead = PassAhead(following, part) if self._sync is not None else None
        return layers.loss

    def step(self) -> None:
        """The step counts: its parameters, if they aren't updated yet, and on with the schedules."""
        update, self._update = self._update, None
        if update is not None:
            update.commit(self._training.state.updater.end_step)
        else:
            self._training.state.updater.step()

    def _has_room(self) -> bool:
        """Whether there is memory for a copy of the state, which isn't asked again once there was."""
        if self._is_roomy:
            return True
        # here, as a loop that runs alone needs neither it nor what it needs of the system
        from peerloom.worker.plan.slot_memory import free_bytes

        state_bytes, free = self._training.state.size_bytes(), free_bytes(self._training.device)
        self._is_roomy = TIMES_FREE * state_bytes <= free
        if not self._is_roomy:
            self._wait(f"a copy of the state wants {state_bytes:,} bytes, and {free:,} are free")
        return self._is_roomy

    def _wait(self, reason: str) -> None:
        """In this generation each forward pass waits for all sums."""
        self._sync = None
        _log.info("forward_waits_for_all", reason=reason)


class LayerwiseSums(TorchFunctionMode):
    """In a forward pass each parameter is updated before the first function of torch gets it.

    Those are what uses a parameter, whichever module calls them: attention gives its output's weights to a
    function and never calls their module.
    """

    def __init__(
        self,
        sums: Sequence[ComingSum],
        update: PartwiseUpdate,
        sync: ScheduledReduce,
        check: Callable[[], None],
    ) -> None:
        super().__init__()
        self.loss = 0.0
        self._left = list(sums)
        self._sum_of = {parameter: one for one in sums for parameter in one.parameters}
        self.unseen = set(self._sum_of)
        self._update, self._sync, self._check = update, sync, check

    def forward(self, inputs: Any) -> Any:
        """The model's outputs, with updated parameters; all are updated then."""
        with self:
            outputs = self._sync.forward(inputs)
        while self._left:
            self._take(self._left[0])
        return outputs

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if self.unseen and not _asks_about(function):
            for tensor in _tensors_in((*args, *given.values())):
                if tensor in self.unseen:
                    self.unseen.remove(tensor)
                    self._take(self._sum_of[tensor])
        return function(*args, **given)

    def _take(self, wanted: ComingSum) -> None:
        """Waits for a sum, and updates parameters by it and by what else has come."""
        if wanted not in self._left:
            return
        waiting_s = time.perf_counter()
        wanted.take()
        taken = [one for one in self._left if one is wanted or one.has_come()]
        for one in taken:
            one.take()
        self._sync.traffic.exposed_s += time.perf_counter() - waiting_s
        self._left = [one for one in self._left if one not in taken]
        self._update.make([parameter for one in taken for parameter in one.parameters])
        if not self._left:
            self.loss = self._sync.finish()
            self._check()


def _asks_about(function: Any) -> bool:
    """Whether it gets what a tensor is like, as its shape, and not its values."""
    return getattr(function, "__name__", "") == "__get__" and function.__self__.__name__ not in _VIEWS


def _tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors_in(value)
