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
from peerloom.v1.trainer_pb2 import MeasuredCodec, MeasuredLayer, MeasuredLink, WorkerMeasured
from peerloom.worker.group.process_group import Group
from peerloom.worker.measuring.codec_speed import codec_speeds
from peerloom.worker.measuring.layer_clock import LayerClock
from peerloom.worker.measuring.link_probe import LinkProbe
from peerloom.worker.measuring.together_probe import TogetherProbe
from peerloom.worker.task import Task
from peerloom.worker.task_checks import check_low_rank, check_method
from peerloom.worker.training import Training

Say = Callable[[WorkerMeasured], None]
PAUSE_AFTER = 2  # steps: what a generation took to form is over, and what its first step alone takes
_log = get_logger()


class NodeMeasures:
    """What a worker has measured that outlives a generation: its codecs, layers by sample, and ways."""

    def __init__(self) -> None:
        self.codecs: list[MeasuredCodec] | None = None
        self.together_bits_per_s = 0.0  # what came while all asked all
        self._ways: dict[str, MeasuredLink] = {}  # by the other one's node
        self._layers: list[MeasuredLayer] = []
        self._samples = 0.0

    @property
    def has_layers(self) -> bool:
        """Whether they were ever timed."""
        return bool(self._layers)

    def note_ways(self, links: Sequence[MeasuredLink], nodes: Sequence[str]) -> None:
        """They were measured to ranks on these nodes."""
        self._ways = {nodes[link.rank]: link for link in links}

    def ways(self, nodes: Sequence[str], rank: int) -> list[MeasuredLink]:
        """The known ones from `rank` to others on these nodes."""
        found = []
        for other, node in enumerate(nodes):
            if other != rank and node in self._ways:
                found.append(MeasuredLink())
                found[-1].CopyFrom(self._ways[node])
                found[-1].rank = other
        return found

    def note_layers(self, layers: list[MeasuredLayer], samples: float) -> None:
        """They were timed in steps with so many samples of this worker's."""
        self._layers, self._samples = layers, samples

    def layers(self, samples: float) -> list[MeasuredLayer]:
        """What they would take with so many samples."""
        scale = samples / self._samples if self._samples else 1.0
        return [
            MeasuredLayer(
                parameters=one.parameters, forward_s=one.forward_s * scale, backward_s=one.backward_s * scale
            )
            for one in self._layers
        ]


class SyncMeasuring:
    """The measurements of one generation, whose mesh stands; begins with its first step.

    The layers are rank 0's, who tells those that it timed before where the clock would spoil the steps
    (`times_layers`). With `ways_known` no rank measures ways. `say` is called once, in a thread, when
    everything is measured, or never where a peer is lost before.
    """

    def __init__(
        self,
        training: Training,
        group: Group,
        asked: AutoSync,
        known: NodeMeasures,
        ways_known: bool,
        say: Say,
    ) -> None:
        self._training = training
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
        if self._made == PAUSE_AFTER and (links := self._links()) is not None:
            threading.Thread(target=self._measure, args=(links,), name="measuring", daemon=True).start()
        figures = self._training.figures
        computed_s, took_s = figures.compute_s - self._compute_s, figures.training_s - self._training_s
        self._compute_s, self._training_s = figures.compute_s, figures.training_s
        self._samples = samples
        if self._clocked.is_set():
            return
        if self._clock is None:
            self._clocked.set()
        elif self._clock.after_step(computed_s / steps, took_s / steps):
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

    def _links(self) -> list[MeasuredLink] | None:
        """To the ranks that this one asks, or has asked before; None where a peer was lost."""
        group = self._group
        assert group.mesh is not None, "a job that measures has one"
        if self._ways_known:
            return self._known.ways(group.node_ids, group.rank)
        try:
            links = LinkProbe(group.mesh, group.rank, group.world_size).run()
            together = TogetherProbe(group.mesh, group.rank, group.world_size, links).run()
        except RuntimeError as error:
            _log.info("links_not_measured", generation=group.generation, reason=str(error))
            return None
        self._known.note_ways(links, group.node_ids)
        self._known.together_bits_per_s = together
        _log.info(
            "ways_measured", generation=group.generation, links=len(links), together_bits_per_s=together
        )
        return links

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
                bears_rounds=self._training.bears_rounds,
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
