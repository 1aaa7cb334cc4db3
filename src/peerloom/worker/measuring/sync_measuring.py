"""One generation's measurements, from its first steps and beside them, told to the trainer.

The ways between workers are measured between two steps, while all pause: beside the training's own messages
they would seem slower than they are.
"""

import threading
from collections.abc import Callable, Sequence

from torch import nn

from peerloom.errors import InvalidArgumentError
from peerloom.kit.logs import get_logger
from peerloom.kit.sync_auto import AutoSync
from peerloom.kit.sync_method import CUT, NONE, SyncMethod
from peerloom.kit.sync_model.sync_choice import candidates
from peerloom.v1.trainer_pb2 import MeasuredLink, WorkerMeasured
from peerloom.worker.group.process_group import Group
from peerloom.worker.measuring.codec_speed import codec_speeds
from peerloom.worker.measuring.layer_clock import LayerClock
from peerloom.worker.measuring.link_pacing import FIRST_LOOK, LinkPacing
from peerloom.worker.measuring.node_measures import NodeMeasures
from peerloom.worker.task import Task
from peerloom.worker.task_checks import check_low_rank, check_method
from peerloom.worker.training import Training

Say = Callable[[WorkerMeasured], None]
_log = get_logger()


class SyncMeasuring:
    """The measurements of one generation, whose mesh stands; begins with its first step.

    The layers are rank 0's, who tells those that it timed before where the clock would spoil the steps
    (`times_layers`). Ways are those that `pacing`, which hears of each step first, has measured, or with
    `ways_known` those from before. `say` is called once, in a thread, when everything is measured, or never
    where a peer is lost before.
    """

    def __init__(
        self,
        training: Training,
        group: Group,
        asked: AutoSync,
        known: NodeMeasures,
        pacing: LinkPacing,
        ways_known: bool,
        say: Say,
    ) -> None:
        self._training = training
        self._pacing = pacing
        self._group = group
        self._asked = asked
        self._known = known
        self._ways_known = ways_known
        self._say = say
        self._samples = 0.0
        self._made = 0
        self._compute_s, self._training_s = training.figures.compute_s, training.figures.training_s
        self._clocked = threading.Event()
        self._is_over = False
        wanted = group.rank == 0 and times_layers(training.sync, known.has_layers)
        self._clock = LayerClock(training.state.model) if wanted else None
        training.is_timed = wanted

    def after_step(self, samples: float, steps: int) -> None:
        """A step, or the `steps` of a round, were made; `samples` of a usual one are this worker's.

        All workers call it after the same ones.
        """
        self._made += 1
        if self._made == FIRST_LOOK and (links := self._links()) is not None:
            threading.Thread(target=self._measure, args=(links,), name="measuring", daemon=True).start()
        figures = self._training.figures
        computed_s, took_s = figures.compute_s - self._compute_s, figures.training_s - self._training_s
        self._compute_s, self._training_s = figures.compute_s, figures.training_s
        self._samples = samples
        if self._clocked.is_set():
            return
        if self._clock is None:
            self._clocked.set()
        elif self._clock.after_step(computed_s / steps, took_s / steps, steps):
            self._known.note_layers(self._clock.layers(), samples)
            self._training.is_timed = False
            self._clocked.set()

    def close(self) -> None:
        """The generation is over."""
        self._is_over = True
        if self._clock is not None:
            self._clock.close()
        self._training.is_timed = False
        self._clocked.set()

    def _links(self) -> Sequence[MeasuredLink] | None:
        """To the ranks that this one asks, or has asked before; None where a peer was lost."""
        if self._ways_known:
            return self._known.ways(self._group.node_ids, self._group.rank)
        return self._pacing.links

    def _measure(self, links: Sequence[MeasuredLink]) -> None:
        group = self._group
        if self._known.codecs is None:
            training = self._training
            methods = usable(training.task, training.state.model, self._asked.quality)
            self._known.codecs = codec_speeds(methods, self._training.device)
        self._clocked.wait()
        if self._is_over:
            return
        layers = self._known.layers(self._samples) if group.rank == 0 else []
        self._say(
            WorkerMeasured(
                generation=group.generation,
                links=links,
                codecs=self._known.codecs,
                layers=layers,
                waits_by_layer=not self._training.why_whole,
                ways_known=self._ways_known,
                together_bits_per_s=self._known.together_bits_per_s,
            )
        )
        _log.info("sync_measured", generation=group.generation, links=len(links), layers=len(layers))


def times_layers(method: SyncMethod, has_layers: bool) -> bool:
    """Whether layers are timed in steps by this method, where they were before or not.

    A codec shares the processor with them. And beside the clock passes don't overlap: the first steps of a
    cut would take longer than all later ones, and by these it is judged.
    """
    return not has_layers or (method.codec == NONE and method.schedule != CUT)


def usable(task: Task, model: nn.Module, quality: str) -> list[SyncMethod]:
    """The methods of a quality that the task's model can be trained with."""
    found = []
    for method in candidates(quality):
        try:
            check_method(task, method, "off")
            check_low_rank(task, model, method)
        except InvalidArgumentError:
            continue
        found.append(method)
    return found
