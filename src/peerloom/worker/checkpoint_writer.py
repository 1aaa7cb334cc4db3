"""Checkpoints: the state is copied at a step boundary, and written while the training goes on; or refused."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from peerloom.errors import PeerloomError
from peerloom.kit import tracing
from peerloom.kit.logs import get_logger
from peerloom.v1.artifact_pb2 import ArtifactKind
from peerloom.v1.trainer_pb2 import Checkpoint, ConfigureGeneration, WorkerAborted, WorkerSessionRequest
from peerloom.worker.agent_artifacts import store_artifact
from peerloom.worker.assignment import Assignment
from peerloom.worker.trainer_session import TrainerSession
from peerloom.worker.training_state import TrainingState

_log = get_logger()


class CheckpointWriter:
    """Stores a checkpoint every `interval_s` seconds (0: never) and tells `report` of it.

    `now_s` is a monotonic clock.
    """

    def __init__(
        self,
        assignment: Assignment,
        interval_s: float,
        report: Callable[[Checkpoint], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._assignment = assignment
        self._interval_s = interval_s
        self._report = report
        self._now_s = now_s
        self._next_s = now_s() + interval_s
        self._writing: threading.Thread | None = None

    def after_step(self, state: TrainingState) -> None:
        """Begins a checkpoint if it is time and the last one is written; costs a copy of the state."""
        if not self._interval_s or self._now_s() < self._next_s:
            return
        if self._writing is not None and self._writing.is_alive():
            return
        self._next_s = self._now_s() + self._interval_s
        checkpoint = Checkpoint(step=state.step, epoch=state.evaluated)
        arguments = (checkpoint, state.copy())
        self._writing = threading.Thread(target=self._write, args=arguments, name="checkpoint", daemon=True)
        self._writing.start()

    def write_now(self, state: TrainingState) -> None:
        """Stores a checkpoint of this state, and returns when that is done, or has failed."""
        if self._writing is not None:
            self._writing.join()
        self._write(Checkpoint(step=state.step, epoch=state.evaluated), state.copy())

    def _write(self, checkpoint: Checkpoint, make: Callable[[], bytes]) -> None:
        try:
            with (
                tracing.span("write checkpoint", step=checkpoint.step),
                TemporaryDirectory(prefix="peerloom-") as folder,
            ):
                path = Path(folder) / "checkpoint.safetensors"
                path.write_bytes(make())
                name = f"step-{checkpoint.step}.safetensors"
                kind = ArtifactKind.ARTIFACT_KIND_CHECKPOINT
                checkpoint.artifact.CopyFrom(store_artifact(self._assignment, path, kind, name))
        except (OSError, PeerloomError) as error:
            _log.warning("checkpoint_failed", step=checkpoint.step, reason=str(error))
            return
        self._report(checkpoint)


def refuse_checkpoint(session: TrainerSession, config: ConfigureGeneration, reason: str) -> None:
    """Tells the trainer that the generation can't begin with what it names."""
    _log.warning("checkpoint_refused", digest=config.checkpoint_digest, reason=reason)
    refused = WorkerAborted(
        generation=config.generation, reason=reason, refused_checkpoint=config.checkpoint_digest
    )
    session.say(WorkerSessionRequest(aborted=refused))
