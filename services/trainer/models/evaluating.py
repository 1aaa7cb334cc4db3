"""Before a job succeeds its model is evaluated here, where the trainer can: no worker's word stands alone."""

import asyncio
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from peerloom.artifacts.disk import disk_errors
from peerloom.artifacts.store import ArtifactStore
from peerloom.errors import DataLossError, PeerloomError
from peerloom.kit.clock import Clock
from peerloom.kit.job_inputs import digest_in
from peerloom.kit.limits import cut_reason
from peerloom.sandbox.grant import Grant
from peerloom.services.trainer.config import TrainerConfig
from peerloom.services.trainer.jobs.record import JobRecord
from peerloom.services.trainer.models.distributing import Distributor
from peerloom.services.trainer.models.evaluation_rules import (
    judge,
    not_evaluated,
    told_of,
    why_not_evaluated,
)
from peerloom.v1.trainer_pb2 import Evaluation, EvaluationVerdict, Job, JobSpec
from peerloom.worker.evaluator.evaluation_order import EvaluationAnswer, EvaluationOrder, Unable

EVALUATION_FOLDER = "evaluation"  # below the state folder: what the evaluator may read and write


class Evaluator(Protocol):
    """What evaluates models, one at a time."""

    def prepare(self) -> None:
        """An order will come: what takes long may be begun."""

    async def evaluate(self, order: EvaluationOrder) -> EvaluationAnswer:
        """The answer to an order; whatever goes wrong is one too."""

    async def keep(self) -> None:
        """Runs beside the orders, until cancelled."""

    async def close(self) -> None:
        """Ends what was started."""


class ModelExaminer:
    """Has the models of jobs evaluated, and enters into their records what came of it."""

    def __init__(
        self,
        config: TrainerConfig,
        artifacts: ArtifactStore,
        distributor: Distributor,
        evaluator: Evaluator,
        clock: Clock,
    ) -> None:
        self._config, self._artifacts, self._distributor = config, artifacts, distributor
        self._evaluator, self._clock = evaluator, clock

    def expect(self, spec: JobSpec) -> None:
        """A job with this spec works: its model will come."""
        if self._why_not(spec) is None:
            self._evaluator.prepare()

    async def examine(self, record: JobRecord, model: Path) -> None:
        """Records what the trainer finds of a job's model.

        Raises DataLossError with the evaluation's reason when that isn't what the job's workers told of.
        """
        started_s = self._clock.monotonic_s()
        evaluation = await self._evaluate(record.job, model)
        evaluation.reason = cut_reason(evaluation.reason)
        evaluation.evaluation_s = self._clock.monotonic_s() - started_s
        record.model_evaluated(evaluation)
        if evaluation.verdict == EvaluationVerdict.EVALUATION_VERDICT_DIFFERS:
            raise DataLossError(evaluation.reason, reason=evaluation.reason_code)

    def _why_not(self, spec: JobSpec) -> Unable | None:
        if self._config.evaluate == "off":
            return Unable("SWITCHED_OFF", "the trainer was started with --evaluate off")
        return why_not_evaluated(spec)

    async def _evaluate(self, job: Job, model: Path) -> Evaluation:
        why_not = self._why_not(job.spec)
        if why_not is not None:
            return not_evaluated(why_not, told_of(job))
        folder = self._config.state_folder() / EVALUATION_FOLDER / job.job_id
        try:
            order = await self._order(job, model, folder)
            return judge(job, await self._evaluator.evaluate(order))
        except (PeerloomError, TimeoutError) as error:  # a data set that is gone, a disk that is full
            why = str(error) or "its data set could not be fetched in time"
            return not_evaluated(Unable("INPUT_NOT_HERE", why), told_of(job))
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _order(self, job: Job, model: Path, folder: Path) -> EvaluationOrder:
        """Copies what is needed to where the evaluator may read: of the trainer's own files it reads none."""
        config, sources = self._config, {"model.safetensors": model}
        named = {name: digest_in(value) for name, value in job.spec.task_arguments.items()}
        digests = {name: digest for name, digest in sorted(named.items()) if digest}
        try:
            for digest in digests.values():
                async with asyncio.timeout(config.transfer_timeout_s):
                    await self._distributor.know(digest)
                self._artifacts.hold(digest, EVALUATION_FOLDER)
                async with asyncio.timeout(config.transfer_timeout_s):
                    await self._distributor.bring(digest)
                sources[digest] = await asyncio.to_thread(self._artifacts.path, digest)
            await asyncio.to_thread(_copy_all, sources, folder)
        finally:
            for digest in digests.values():
                self._artifacts.release(digest, EVALUATION_FOLDER)
        return EvaluationOrder(
            task=job.spec.task,
            task_arguments=dict(job.spec.task_arguments),
            model_path=str(folder / "model.safetensors"),
            inputs={name: str(folder / digest) for name, digest in digests.items()},
            grant=Grant(
                folder=str(folder),
                private=str(config.state_folder()),
                file_limit_bytes=config.model_limit_bytes,
                memory_limit_bytes=config.evaluation_memory_bytes,
            ),
            limit_s=config.evaluation_timeout_s,
        )


def _copy_all(sources: Mapping[str, Path], folder: Path) -> None:
    # Not links: the evaluator may write what is in its folder.
    with disk_errors(folder):
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(FileExistsError):
            folder.parent.mkdir(mode=0o700, parents=True)
        folder.mkdir(mode=0o700)
        for name, source in sources.items():
            shutil.copyfile(source, folder / name)
