"""What is measured in a generation, as the job's method asks for it."""

from peerloom.kit.robust_rules import OFF
from peerloom.kit.sync_auto import AutoSync, asked_sync
from peerloom.v1.trainer_pb2 import JobSpec
from peerloom.worker.group.process_group import Group
from peerloom.worker.measuring.link_pacing import LinkPacing, is_shared
from peerloom.worker.measuring.node_measures import NodeMeasures
from peerloom.worker.measuring.sync_measuring import Say, SyncMeasuring
from peerloom.worker.training import Training


class GenerationMeasuring:
    """One generation's, of a job with this `spec`; `known` is from the former ones.

    `say` is as SyncMeasuring's. With `ways_known` the trainer needs no ways.
    """

    def __init__(
        self, training: Training, group: Group, spec: JobSpec, known: NodeMeasures, ways_known: bool, say: Say
    ) -> None:
        asked = asked_sync("spec.sync", spec.sync, spec.robust or OFF)
        self._pacing: LinkPacing | None = None
        self._sync: SyncMeasuring | None = None
        if group.mesh is None:
            return
        if isinstance(asked, AutoSync):
            self._pacing = LinkPacing(training, group, known, must_measure=not ways_known)
            self._sync = SyncMeasuring(training, group, asked, known, self._pacing, ways_known, say)
        elif is_shared(training, group):
            self._pacing = LinkPacing(training, group, known, must_measure=False)

    def after_step(self, samples: float, steps: int) -> None:
        """A step, or the `steps` of a round, were made; `samples` of a usual one are this worker's.

        All workers call it after the same ones.
        """
        if self._pacing is not None:
            self._pacing.after_step(steps)
        if self._sync is not None:
            self._sync.after_step(samples, steps)

    def close(self) -> None:
        """The generation is over."""
        if self._sync is not None:
            self._sync.close()
