"""Checkpoints and the model of a pipeline: all stages' parts, in files that one gives to its agent."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import Tensor

from peerloom.errors import PeerloomError
from peerloom.kit.logs import get_logger
from peerloom.kit.safetensors_file import parameters_digest
from peerloom.v1.artifact_pb2 import ArtifactKind
from peerloom.v1.trainer_pb2 import Checkpoint, JobSpec
from peerloom.worker.agent_artifacts import store_artifact
from peerloom.worker.assignment import Assignment
from peerloom.worker.description import origin_of
from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.plan.stage_links import StageLinks
from peerloom.worker.plan.tensor_cuts import TensorCut
from peerloom.worker.plan.whole_state import (
    COUNTERS,
    gather_text,
    joined,
    name_in,
    text_tensor,
    write_whole,
)

_log = get_logger()


def write_checkpoint(training: PipelineTraining, links: StageLinks, path: Path, writer: int = 0) -> None:
    """The state of all stages, into a file of the `writer`'s; all call it together, with equal steps.

    Raises what `write_whole` does.
    """
    tensors = training.state.tensors()
    counters = json.loads(bytes(tensors.pop(COUNTERS).tolist()))
    told = gather_text(links, json.dumps(counters), writer)
    added = {}
    if told:
        whole = joined([json.loads(text) for text in told], training.blueprint.groups)
        added[COUNTERS] = text_tensor(json.dumps(whole))
    own, cuts = _given(training, links.rank, writer, tensors, name_in)
    write_whole(links, path, own, {}, added, writer, cuts)


def write_model(training: PipelineTraining, links: StageLinks, spec: JobSpec, path: Path) -> str:
    """The model of all stages, into a file of rank 0's; its digest, the same on all. All call it together.

    Raises what `write_whole` does.
    """
    origin = origin_of(
        training.task, spec.task, dict(spec.task_arguments), training.train, training.stage_model.whole
    )
    own, cuts = _given(training, links.rank, 0, training.stage_model.state_dict(), str)
    write_whole(links, path, own, origin.to_metadata(), {}, cuts=cuts)
    digest = bytes(32)
    if links.rank == 0:
        with path.open("rb") as file:
            digest = bytes.fromhex(parameters_digest(file))
    return bytes(int(byte) for byte in links.gather([float(byte) for byte in digest])[0]).hex()


def _given(
    training: PipelineTraining,
    rank: int,
    writer: int,
    own: Mapping[str, Tensor],
    name_of: Callable[[str], str],
) -> tuple[dict[str, Tensor], dict[str, TensorCut]]:
    """What a rank gives of its `own` tensors to a file of the `writer`'s, and how these are cut."""
    if not training.plan.ranks.gives_part(rank, writer):
        return {}, {}
    return training.pieces.given(own, name_of)


class StageCheckpoints:
    """Writes a checkpoint every `interval_s` seconds (0: never), of which `report` hears from its writer.

    `is_due` is rank 0's word; the parts then travel while all wait, and go to the agent beside the training.
    """

    def __init__(
        self,
        assignment: Assignment,
        links: StageLinks,
        interval_s: float,
        report: Callable[[Checkpoint], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._assignment, self._links = assignment, links
        self._interval_s, self._report, self._now_s = interval_s, report, now_s
        self._next_s = now_s() + interval_s
        self._storing: threading.Thread | None = None

    def is_due(self) -> bool:
        """Whether rank 0 wants a checkpoint: it is time, and the last one is stored."""
        is_free = self._storing is None or not self._storing.is_alive()
        return self._links.rank == 0 and bool(self._interval_s) and is_free and self._now_s() >= self._next_s

    def keep(self, training: PipelineTraining, writer: int, *, at_once: bool) -> None:
        """Writes one with the other stages; the writer stores it, `at_once` or in another thread."""
        folder = TemporaryDirectory(prefix="peerloom-")
        path = Path(folder.name) / "checkpoint.safetensors"
        self._next_s = self._now_s() + self._interval_s
        try:
            write_checkpoint(training, self._links, path, writer)
        except OSError as error:
            folder.cleanup()
            _log.warning("checkpoint_failed", step=training.state.step, reason=str(error))
            return
        except BaseException:
            folder.cleanup()
            raise
        if self._links.rank != writer:
            folder.cleanup()
            return
        checkpoint = Checkpoint(step=training.state.step, epoch=training.state.evaluated)
        if self._storing is not None:
            self._storing.join()
        arguments = (checkpoint, folder, path)
        self._storing = threading.Thread(target=self._store, args=arguments, name="checkpoint", daemon=True)
        self._storing.start()
        if at_once:
            self._storing.join()

    def _store(self, checkpoint: Checkpoint, folder: "TemporaryDirectory[str]", path: Path) -> None:
        with folder:
            try:
                kind, name = ArtifactKind.ARTIFACT_KIND_CHECKPOINT, f"step-{checkpoint.step}.safetensors"
                checkpoint.artifact.CopyFrom(store_artifact(self._assignment, path, kind, name))
            except (OSError, PeerloomError) as error:
                _log.warning("checkpoint_failed", step=checkpoint.step, reason=str(error))
                return
        self._report(checkpoint)
