"""A script job's worker: follows the trainer's commands, generation after generation."""

from peerloom.errors import DataLossError, PermissionDeniedError
from peerloom.kit import tracing
from peerloom.kit.logs import get_logger
from peerloom.v1.trainer_pb2 import (
    AbortGeneration,
    Checkpoint,
    ConfigureGeneration,
    EndWorker,
    JobSpec,
    PrepareWorker,
    ScriptExit,
    WorkerAborted,
    WorkerFinished,
    WorkerPrepared,
    WorkerReady,
    WorkerSessionRequest,
)
from peerloom.worker.assignment import Assignment
from peerloom.worker.checkpoint_writer import refuse_checkpoint
from peerloom.worker.generation_spans import generation_span
from peerloom.worker.group.waits import GenerationBrokenError
from peerloom.worker.script.attempt import ScriptAttempt
from peerloom.worker.script.gathering import Answering, Gathering
from peerloom.worker.script.periodic_calls import PeriodicCalls
from peerloom.worker.script.script_process import adopt_orphans
from peerloom.worker.script.working_folder import WorkingFolder
from peerloom.worker.trainer_session import TrainerSession

_log = get_logger()


class ScriptWorker:
    """Keeps the session with the trainer, and runs the user's script beside it as a process of its own."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._is_tls = bool(assignment.identity) and not assignment.plain_collectives
        self.session = TrainerSession(assignment, self._abort, is_tls=self._is_tls)
        self._folder = WorkingFolder(assignment)
        self._store_interval_s = 0.0
        self._attempt: ScriptAttempt | None = None
        self._answering: Answering | None = None
        self._gathering: Gathering | None = None

    def run(self) -> int:
        """Follows the trainer's commands until the job is over."""
        adopt_orphans()
        self.session.start()
        while True:
            command = self.session.commands.get()
            if isinstance(command, EndWorker):
                _log.info("worker_ended", reason=command.reason)
                return 0
            if isinstance(command, PrepareWorker):
                self._store_interval_s = command.checkpoint_interval_s
                self._prepare(command.spec)
                self.session.answer(WorkerSessionRequest(prepared=WorkerPrepared()))
            elif isinstance(command, ConfigureGeneration):
                with generation_span(command):
                    self._work(command)

    def ask_to_leave(self, reason: str, grace_s: float = 0.0) -> None:
        """The node wants its slot back: the others go on without this worker, or with a replacement.

        `grace_s` is how long it may wait for one.
        """
        self.session.leave(reason, grace_s)

    def ask_to_stay(self) -> None:
        """The node doesn't want its slot back any more."""
        self.session.stay()

    def _abort(self, abort: AbortGeneration) -> None:
        # In the session's thread. A script has no step boundary to leave at: it is ended at once.
        attempt = self._attempt
        if attempt is not None and (not abort.generation or attempt.generation <= abort.generation):
            attempt.end(abort.reason)
            if self._gathering is not None:
                self._gathering.broke()

    def _prepare(self, spec: JobSpec) -> None:
        if why_not := self._assignment.work.why_not(spec):
            raise PermissionDeniedError(f"This worker does only what it was started for: {why_not}.")
        with tracing.span("prepare", task=spec.task):
            self._folder.lay_out()
            self._folder.script(spec.task)

    def _work(self, config: ConfigureGeneration) -> None:
        check_may_be_plain(self._is_tls, config.world_size)
        if self._answering is not None:
            self._answering.close()
        if not self._took_files(config):
            return
        attempt = ScriptAttempt(self._assignment, config, self.session.entries.of(config.generation))
        self._attempt = attempt
        if why_over := self.session.why_over(config.generation):
            attempt.end(why_over)
        _log.info("generation_joined", generation=config.generation, rank=config.rank)
        self.session.set_position(0, config.generation)
        last_word = self._run_attempt(attempt, config)
        self.session.set_position(0, 0 if last_word.HasField("aborted") else config.generation)
        self.session.say(last_word)

    def _run_attempt(self, attempt: ScriptAttempt, config: ConfigureGeneration) -> WorkerSessionRequest:
        """Runs it to its end, and stores what was written; the worker's last word on the generation."""
        ready = WorkerSessionRequest(ready=WorkerReady(generation=config.generation))
        aborted = WorkerAborted(generation=config.generation)
        gathering = self._gathering = self._share_files(config)
        interval_s = self._store_interval_s if gathering is not None else 0.0
        periodic = PeriodicCalls(lambda: self._report(gathering), interval_s)
        try:
            script = self._folder.script(config.spec.task)
            attempt.run(script, self._folder.path, lambda: self.session.say(ready))
            aborted.reason = f"its script ended with status {attempt.status}" if attempt.status else ""
            if attempt.status and not self.session.is_leaving():  # else its node ended them both
                failed = ScriptExit(rank=config.rank, status=attempt.status, last_lines=attempt.last_lines)
                aborted.script_exit.CopyFrom(failed)
        except GenerationBrokenError as broken:
            aborted.reason = str(broken)
        finally:
            if gathering is not None:
                gathering.close()
            periodic.close()
        # With the last word, which is said again when the stream breaks, they reach the trainer in any case.
        files = gathering.last(is_broken=bool(aborted.reason)) if gathering is not None else None
        kept = Checkpoint(artifact=files) if files is not None else None
        if not aborted.reason:
            finished = WorkerFinished(generation=config.generation, script_files=kept)
            return WorkerSessionRequest(finished=finished)
        _log.warning("generation_broken", generation=config.generation, reason=aborted.reason)
        if kept is not None:
            aborted.script_files.CopyFrom(kept)
        return WorkerSessionRequest(aborted=aborted)

    def _share_files(self, config: ConfigureGeneration) -> Gathering | None:
        """Rank 0's way to what the others write; another rank answers it, also after its own script's end."""
        entries = self.session.entries.of(config.generation)
        if config.rank == 0:
            return Gathering(self._assignment, self._folder, entries, config)
        self._answering = Answering(self._assignment, self._folder, entries, config.rank)
        return None

    def _report(self, gathering: Gathering | None) -> None:
        if gathering is not None and (stored := gathering.store()) is not None:
            self.session.report_checkpoint(Checkpoint(artifact=stored))

    def _took_files(self, config: ConfigureGeneration) -> bool:
        try:
            self._folder.begin_with(config.checkpoint_digest)
        except DataLossError as error:
            refuse_checkpoint(self.session, config, error.message)
            return False
        return True


def check_may_be_plain(is_tls: bool, world_size: int) -> None:
    """Raises PermissionDeniedError where gradients must travel by TLS, which a script's own groups can't."""
    if is_tls and world_size > 1:
        raise PermissionDeniedError(
            "A script's processes send gradients in the clear, and this node wants them sent by TLS: start "
            "the nodes of this job with --plain-collectives, on a network that you trust, or let one worker "
            "do it (--max-workers 1).",
            reason="SCRIPT_IS_PLAIN",
        )
