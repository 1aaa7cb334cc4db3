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
from peerloom.v1.trainer_pb2 import StageShadow
from peerloom.worker.group.waits import TensorFuture
from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.plan.shadow_limits import ShadowPace, StageRoom, why_no_room
from peerloom.worker.plan.stage_change import ChangeLayout
from peerloom.worker.plan.stage_links import ChangeLinks, StageLinks
from peerloom.worker.plan.stage_shadow import CommittedStep
from peerloom.worker.plan.state_transfer import receive_state, send_state

ADAM_TIMES = 3  # a state beside its parameters, before the optimiser has made its own
_log = get_logger()


class Shadowing:
    """This stage's part in the shadows of a generation, which it begins at once with all others.

    `holders` and `node_ids` are by stage; `links` tell numbers among all, `states` and `changes` are other
    ways between the same stages. Each holder that lacks the state gets it beside the first step.
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
        self._training, self._stage = training, links.stage
        self._states, self._changes = states, changes
        self._holder, self._ward = holders[links.stage], holders.index(links.stage)
        self._layout = ChangeLayout(training.stage_model)
        self._past = training.begin_past()
        self._pace = ShadowPace()
        self._workers = ThreadPoolExecutor(1, "shadow")  # what it does is done in turn, beside the training
        self._beside: Future[None] | None = None
        self._sent: tuple[TensorFuture, Tensor] | None = None
        self._coming: list[tuple[int, TensorFuture, Tensor]] = []
        self._waited_s, self._newest = 0.0, training.state.step
        step, known = training.state.step, training.shadows.get(self._ward)
        has = known is not None and step in known.steps()
        rows = links.gather([has, *_room_of(training, self._layout)])
        self.why_not = why_no_room([StageRoom(*row[1:]) for row in rows], holders, node_ids)
        if self.why_not:
            self._end(self.why_not)
            return
        self._shadow = known if known is not None and has else training.empty_shadow(self._ward)
        if has:
            self._shadow.go_to(step)
            self._shadow.state.reopen_epoch(training.schedule.steps_per_epoch)
        self._beside = self._workers.submit(self._bring, not rows[self._holder][0], not has)

    @property
    def is_on(self) -> bool:
        """Whether shadows are kept; the same on all stages at each step boundary."""
        return not self.why_not

    def begin_step(self) -> None:
        """Awaits the change of the step that begins: it may come before this stage is as far."""
        if self.is_on:
            target = torch.empty(self._shadow.layout.size_bytes, dtype=torch.uint8)
            future = self._changes.begin_receive(self._ward, target)
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
            content = self._layout.packed()
            self._sent = (self._changes.begin_send(self._holder, content), content)

    def figures(self, step_s: float) -> list[float]:
        """What all are told with the step's commit: how long this stage waited here, and took in all."""
        return [self._waited_s, step_s] if self.is_on else []

    def before_update(self) -> None:
        """The step is committed, and the state of now is the past then."""
        if self.is_on:
            self._past.note()

    def after_update(self, made: CommittedStep, figures: Sequence[Sequence[float]]) -> None:
        """This stage made the step; all stages told these `figures` with it."""
        if not self.is_on:
            return
        self._past.settle()
        self._training.shadows = {self._ward: self._shadow}  # those of other stages have no more use
        self._shadow.committed(made)
        self._take_what_came()
        self._newest = self._shadow.steps()[-1]
        self._beside = self._workers.submit(self._shadow.follow, made.step - 1)
        waited_s, step_s = zip(*figures, strict=True)
        if why_not := self._pace.why_not(waited_s, step_s):
            self._end(why_not)

    def closed_epoch(self, epoch: int, metric: float) -> None:
        """All stages measured an epoch after the newest step."""
        if self.is_on:
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
        if not self.is_on or self._ward not in self._training.shadows:
            return
        if failure is not None:
            _log.warning("shadow_dropped", stage=self._ward, reason=str(failure))
            self._training.shadows = {}
        self._take_what_came()

    def told(self) -> StageShadow:
        """What the trainer hears of it."""
        if not self.is_on:
            return StageShadow(stage=self._ward, why_not=self.why_not)
        size_bytes = self._shadow.size_bytes
        return StageShadow(stage=self._ward, step=self._newest, size_bytes=size_bytes)

    def _bring(self, gives: bool, takes: bool) -> None:
        if gives:
            send_state(self._states, self._holder, self._past.tensors())
        if takes:
            self._shadow.state.take(receive_state(self._states, self._ward))
        self._states.flush()

    def _finish_beside(self) -> None:
        if self._beside is not None:
            self._beside.result()

    def _await_changes(self, step: int) -> None:
        while self._coming and self._coming[0][0] <= step:
            came_with, future, content = self._coming.pop(0)
            self._changes.result(future)
            self._shadow.came(came_with, content)

    def _take_what_came(self) -> None:
        while self._coming and self._coming[0][1].done():
            step, future, content = self._coming.pop(0)
            if isinstance(future.value(), Tensor):  # or the reason why it doesn't come
                self._shadow.came(step, content)

    def _end(self, why_not: str) -> None:
        self.why_not = why_not
        self._training.shadows, self._training.own_past = {}, None
        _log.warning("shadows_ended", step=self._training.state.step, reason=why_not)


def _room_of(training: PipelineTraining, layout: ChangeLayout) -> tuple[float, float, float, float]:
    """A `StageRoom` as numbers."""
    own_bytes = training.state.size_bytes()
    state_bytes = own_bytes if training.state.updater.moments() else ADAM_TIMES * own_bytes
    device, free_bytes = training.device, psutil.virtual_memory().available
    accelerator_bytes = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else math.inf
    return state_bytes, layout.size_bytes, free_bytes, accelerator_bytes
