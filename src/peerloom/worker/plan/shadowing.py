"""A generation's shadows: each stage's changes go to the worker that keeps its shadow, and another's come.

A change leaves as soon as it is computed, and travels while the step is committed and the next one computed.
The commit of a step waits for the changes of the step before: so no stage is ever more than a step ahead of
its shadow, and all can go back to one step together. Each keeps its own past for that.
"""

import math
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import psutil
import torch
from torch import Tensor

from peerloom.kit.logs import get_logger
from peerloom.kit.shadow_ring import ward_of
from peerloom.v1.trainer_pb2 import StageShadow
from peerloom.worker.group.waits import TensorFuture
from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.plan.shadow_limits import ShadowPace, StageRoom, why_no_room
from peerloom.worker.plan.stage_change import ChangeLayout
from peerloom.worker.plan.stage_links import ChangeLinks, StageLinks
from peerloom.worker.plan.stage_shadow import CommittedStep, Shadow
from peerloom.worker.plan.state_transfer import receive_state, send_state

ADAM_TIMES = 3  # a state beside its parameters, before the optimiser has made its own
_log = get_logger()


class Shadowing:
    """This worker's part in the shadows of a generation, which it begins at once with all others.

    `holders` are by stage (`shadow_holders`), `node_ids` by rank; `links` tell numbers among all, `states`
    and `changes` are other ways between the same workers. Each holder that lacks the state gets it beside the
    first step. The training keeps its own past already.
    """

    def __init__(
        self,
        training: PipelineTraining,
        links: StageLinks,
        states: StageLinks,
        changes: ChangeLinks,
        holders: Sequence[int],
        node_ids: Sequence[str],
    ) -> None:
        self._training, ranks = training, training.plan.ranks
        self._states, self._changes = states, changes
        own = ranks.stage_of(links.rank)
        # What of this worker is kept by another, and what it keeps: some have nothing of either.
        self._holder = holders[own] if ranks.widths[own] == 1 else None
        self._ward = ward_of(links.rank, holders, ranks)
        self._source = 0 if self._ward is None else ranks.of_stage(self._ward)[0]
        self._first = ranks.widths.index(1)
        self._layout = ChangeLayout(training.stage_model)
        self._pace = ShadowPace()
        self._workers = ThreadPoolExecutor(1, "shadow")  # what it does is done in turn, beside the training
        self._beside: Future[None] | None = None
        self._sent: tuple[TensorFuture, Tensor] | None = None
        self._coming: list[tuple[int, TensorFuture, Tensor]] = []
        self._waited_s, self._newest = 0.0, training.state.step
        step = training.state.step
        known = None if self._ward is None else training.shadows.get(self._ward)
        has = known is not None and step in known.steps()
        rows = links.gather([has, *_room_of(training, self._layout)])
        self.why_not = why_no_room([StageRoom(*row[1:]) for row in rows], holders, node_ids, ranks)
        self._shadow: Shadow | None = None
        if self.why_not:
            self._end(self.why_not)
            return
        if has and known is not None:
            self._shadow = known
            known.go_to(step)
            known.state.reopen_epoch(training.schedule.steps_per_epoch)
        elif self._ward is not None:
            self._shadow = training.empty_shadow(self._ward)
        gives = self._holder is not None and not rows[self._holder][0]
        self._beside = self._workers.submit(self._bring, gives, self._ward is not None and not has)

    @property
    def is_on(self) -> bool:
        """Whether shadows are kept; the same on all workers at each step boundary."""
        return not self.why_not

    def begin_step(self) -> None:
        """Awaits the change of the step that begins: it may come before this stage is as far."""
        if self.is_on and self._shadow is not None:
            target = torch.empty(self._shadow.layout.size_bytes, dtype=torch.uint8)
            future = self._changes.begin_receive(self._source, target)
            self._coming.append((self._training.state.step + 1, future, target))

    def before_commit(self) -> None:
        """The step's gradients are there: they leave, once those of the step before have come and gone.

        Raises what `ChangeLinks.result` does, and what the shadow's own updates raise.
        """
        if self.is_on:
            began_s = time.perf_counter()
            self._finish_beside()
            self._await_changes(self._training.state.step)
            if self._sent is not None:
                self._changes.result(self._sent[0])
            self._waited_s = time.perf_counter() - began_s
            if self._holder is not None:
                content = self._layout.packed()
                self._sent = (self._changes.begin_send(self._holder, content), content)

    def figures(self, step_s: float) -> list[float]:
        """What all are told with the step's commit: how long this stage waited here, and took in all."""
        return [self._waited_s, step_s] if self.is_on else []

    def after_update(self, made: CommittedStep, figures: Sequence[Sequence[float]]) -> None:
        """This stage made the step; all stages told these `figures` with it."""
        if not self.is_on:
            return
        shadow = self._shadow
        self._training.shadows = {}  # those of other stages have no more use
        if shadow is not None:
            self._training.shadows = {shadow.stage: shadow}
            shadow.committed(made)
            self._take_what_came()
            self._newest = shadow.steps()[-1]
            self._beside = self._workers.submit(shadow.follow, made.step - 1)
        waited_s, step_s = zip(*figures, strict=True)
        if why_not := self._pace.why_not(waited_s, step_s):
            self._end(why_not)

    def closed_epoch(self, epoch: int, metric: float) -> None:
        """All stages measured an epoch after the newest step."""
        if self.is_on and self._shadow is not None:
            self._finish_beside()
            self._shadow.closed_epoch(self._training.state.step, epoch, metric)

    def settle(self) -> None:
        """Waits until the changes of the newest step have come: the generation makes no more of them."""
        if self.is_on:
            self._finish_beside()
            self._await_changes(self._training.state.step)
            if self._sent is not None:
                self._changes.result(self._sent[0])

    def close(self) -> None:
        """The generation is over, in whatever way; what has come of its steps counts."""
        self._workers.shutdown()
        failure = self._beside.exception() if self._beside is not None else None
        if not self.is_on or not self._training.shadows:
            return
        if failure is not None:
            _log.warning("shadow_dropped", stage=self._ward, reason=str(failure))
            self._training.shadows = {}
        self._take_what_came()

    def told(self) -> StageShadow | None:
        """What the trainer hears of it; None of a worker that keeps none, as it needn't."""
        if not self.is_on:
            return StageShadow(stage=self._first if self._ward is None else self._ward, why_not=self.why_not)
        if self._shadow is None:
            return None
        size_bytes = self._shadow.size_bytes
        return StageShadow(stage=self._shadow.stage, step=self._newest, size_bytes=size_bytes)

    def _bring(self, gives: bool, takes: bool) -> None:
        past = self._training.own_past
        if gives and self._holder is not None and past is not None:
            send_state(self._states, self._holder, past.tensors())
        if takes and self._shadow is not None:
            self._shadow.state.take(receive_state(self._states, self._source))
        self._states.flush()

    def _finish_beside(self) -> None:
        if self._beside is not None:
            self._beside.result()

    def _await_changes(self, step: int) -> None:
        while self._coming and self._coming[0][0] <= step:
            came_with, future, content = self._coming.pop(0)
            self._changes.result(future)
            self._keep(came_with, content)

    def _take_what_came(self) -> None:
        while self._coming and self._coming[0][1].done():
            step, future, content = self._coming.pop(0)
            if isinstance(future.value(), Tensor):  # or the reason why it doesn't come
                self._keep(step, content)

    def _keep(self, step: int, content: Tensor) -> None:
        assert self._shadow is not None, "changes come to who keeps a shadow"
        self._shadow.came(step, content)

    def _end(self, why_not: str) -> None:
        self.why_not = why_not
        self._training.shadows = {}
        if (
            not self._training.plan.ranks.is_wide
        ):  # else a lost worker of a wide stage is still replaced by it
            self._training.own_past = None
        _log.warning("shadows_ended", step=self._training.state.step, reason=why_not)


def _room_of(training: PipelineTraining, layout: ChangeLayout) -> tuple[float, float, float, float]:
    """A `StageRoom` as numbers."""
    own_bytes = training.state.size_bytes()
    state_bytes = own_bytes if training.state.updater.moments() else ADAM_TIMES * own_bytes
    device, free_bytes = training.device, psutil.virtual_memory().available
    accelerator_bytes = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else math.inf
    return state_bytes, layout.size_bytes, free_bytes, accelerator_bytes
