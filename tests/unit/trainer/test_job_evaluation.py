"""No job succeeds before its model was evaluated, or its record says why it was not."""

from trainer_room import until
from trainer_site import CHECKPOINT, Site, finish

from peerloom.v1.selector_pb2 import EvidenceKind
from peerloom.v1.trainer_pb2 import EvaluationVerdict, JobState, WorkerReady, WorkerSessionRequest
from peerloom.worker.evaluator.evaluation_order import Evaluated, Unable

AGREES = EvaluationVerdict.EVALUATION_VERDICT_AGREES
DIFFERS = EvaluationVerdict.EVALUATION_VERDICT_DIFFERS
LIE = Evaluated("accuracy", 0.1, 0.0, 40, 10)


async def test_a_job_succeeds_when_its_model_is_as_told() -> None:
    async with Site().serving() as site:
        job_id = await site.submit()
        worker = await site.working()
        assert site.room.evaluator.is_prepared, "it is imported while the job works"
        finish(worker)
        job = await site.ended(job_id)
        assert (job.state, job.evaluation.verdict) == (JobState.JOB_STATE_SUCCEEDED, AGREES)
        assert (job.evaluation.told, job.evaluation.found) == (0.9, 0.9)
        [order] = site.room.evaluator.orders
        assert order.task == "digits"
        kinds = site.room.kinds_written(job_id)
        assert kinds.index("evaluation") > kinds.index("epoch")


async def test_a_job_whose_model_is_not_as_told_fails_and_its_one_owner_has_lied() -> None:
    async with Site().serving() as site:
        site.room.evaluator.answer = LIE
        job_id = await site.submit()
        finish(await site.working())
        job = await site.ended(job_id)
        assert (job.state, job.evaluation.verdict) == (JobState.JOB_STATE_FAILED, DIFFERS)
        assert job.state_reason == (
            "the model isn't what its workers told of: the model's accuracy on the 10 test samples is "
            "0.1000, but its workers told of 0.9000"
        )
        assert job.evaluation.reason_code == "METRIC_DIFFERS"
        assert not job.HasField("result"), "it leaves no model"
        facts = [(fact.node_id, fact.kind) for fact in site.room.neighbours.evidence]
        assert facts == [("node-ada", EvidenceKind.EVIDENCE_KIND_LIE)]


async def test_an_evaluator_that_can_not_say_ends_no_job_and_the_record_tells() -> None:
    async with Site().serving() as site:
        site.room.evaluator.answer = Unable("EVALUATOR_ENDED", "it was killed")
        job_id = await site.submit()
        finish(await site.working())
        job = await site.ended(job_id)
        assert job.state == JobState.JOB_STATE_SUCCEEDED
        assert (job.evaluation.reason_code, job.evaluation.reason) == (
            "EVALUATOR_ENDED",
            "not evaluated: it was killed",
        )


async def test_a_trainer_that_dies_while_a_model_is_evaluated_evaluates_it_again() -> None:
    async with Site().serving() as site:
        site.room.evaluator.goes_on.clear()
        job_id = await site.submit()
        worker = await site.working()
        finish(worker)
        await until(lambda: site.room.evaluator.orders)
        await until(lambda: site.job(job_id).progress.epoch == 1)
    again = await site.restarted()
    again.room.evaluator.answer = LIE
    async with again.serving():
        worker._router = again.room.router
        worker.connect(step=4, generation=1)
        finish(worker)
        job = await again.ended(job_id)
        assert (job.state, job.evaluation.verdict) == (JobState.JOB_STATE_FAILED, DIFFERS)


async def test_a_job_is_cancelled_while_its_model_is_evaluated() -> None:
    async with Site().serving() as site:
        site.room.evaluator.goes_on.clear()
        job_id = await site.submit()
        finish(await site.working())
        await until(lambda: site.room.evaluator.orders)
        await site.room.jobs.cancel(job_id)
        assert site.job(job_id).state == JobState.JOB_STATE_CANCELLED


async def test_a_failed_job_that_is_resumed_is_evaluated_anew() -> None:
    async with Site().serving() as site:
        site.room.evaluator.answer = LIE
        job_id = await site.submit()
        first = await site.working()
        first.say(WorkerSessionRequest(checkpoint=CHECKPOINT))
        await until(lambda: site.job(job_id).HasField("checkpoint"))
        finish(first)
        assert (await site.ended(job_id)).state == JobState.JOB_STATE_FAILED
        site.room.evaluator.answer = Evaluated("accuracy", 0.9, 0.0, 40, 10)
        await site.room.jobs.resume(job_id)
        assert not site.job(job_id).HasField("evaluation")
        second = await site.worker()
        generation = (await second.hear("configure")).configure.generation
        second.say(WorkerSessionRequest(ready=WorkerReady(generation=generation)))
        finish(second, generation)
        job = await site.ended(job_id)
        assert (job.state, job.evaluation.verdict) == (JobState.JOB_STATE_SUCCEEDED, AGREES)
