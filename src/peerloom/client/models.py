"""The models that jobs left: which one a user means by a name, a digest, or a job."""

import re
from pathlib import Path

from peerloom.client.conversions.jobs import job_of, model_of
from peerloom.client.remote_services import Services
from peerloom.client.types import Model
from peerloom.client.types.shown import Listing
from peerloom.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from peerloom.v1.trainer_pb2 import GetJobRequest, ListModelsRequest


async def list_models(services: Services, limit: int | None = None) -> list[Model]:
    """The models that the trainer keeps, newest first."""
    found = await services.trainer.pages(
        lambda stub: stub.ListModels, ListModelsRequest(), lambda page: page.models, limit
    )
    return Listing(model_of(each) for each in found)


async def find_digest(services: Services, model: str) -> str:
    """The digest meant by `model`: a digest, the beginning of one, a job, NAME, NAME:latest or NAME:VERSION.

    Raises NotFoundError with the nearest ones, InvalidArgumentError for a beginning that several models
    share, FailedPreconditionError for a job that left no model.
    """
    if model.startswith("job-"):
        return await _digest_of_job(services, model)
    if re.fullmatch("[0-9a-f]{64}", model):
        return model
    known = await list_models(services)
    named = pick_version(model, known)
    return named.digest if named else pick_digest(model, [each.digest for each in known])


async def find_model(services: Services, model: str) -> Model:
    """The model meant by `model`, with its lineage; raises as `find_digest` does."""
    known = await list_models(services)
    named = pick_version(model, known)
    if named is not None:
        return named
    digest = await find_digest(services, model)
    found = next(
        (each for each in known if model in (each.job_id, each.digest) or each.digest == digest), None
    )
    if found is None:
        raise NotFoundError.of_name("model", model, [each.digest[:12] for each in known])
    return found


def pick_version(reference: str, known: list[Model]) -> Model | None:
    """The model called NAME, NAME:latest or NAME:VERSION among those known, newest first; None: no name.

    Raises NotFoundError for a name that is known without this version, and for an unknown NAME:VERSION.
    """
    name, colon, version = reference.partition(":")
    if not name:
        return None
    named = sorted((one for one in known if one.name == name), key=lambda one: -one.version)
    if not named:
        if colon:
            raise NotFoundError.of_name("model", reference, dict.fromkeys(one.reference for one in known))
        return None
    if version in ("", "latest"):
        return named[0]
    found = next((one for one in named if str(one.version) == version), None)
    if found is None:
        raise NotFoundError.of_name("model", reference, [one.reference for one in named])
    return found


def pick_digest(beginning: str, known: list[str]) -> str:
    """The one `known` digest with this `beginning`; raises as `find_digest` does."""
    found = sorted({digest for digest in known if beginning and digest.startswith(beginning)})
    if not found:
        raise NotFoundError.of_name("model", beginning, [digest[:12] for digest in known])
    if len(found) > 1:
        limit = (
            f"the beginning of one model only (these begin so: {', '.join(each[:16] for each in found[:5])})"
        )
        raise InvalidArgumentError.of_field("model", beginning, limit)
    return found[0]


def target_file(path: str | Path, digest: str) -> Path:
    """The file to write: `path`, or one named after the digest when `path` is a folder or ends with a "/"."""
    target = Path(path).expanduser()
    is_folder = target.is_dir() or str(path).endswith("/")
    return target / f"{digest[:12]}.safetensors" if is_folder else target


async def _digest_of_job(services: Services, job_id: str) -> str:
    answer = await services.trainer.call(lambda stub: stub.GetJob, GetJobRequest(job_id=job_id))
    job = job_of(answer.job)
    if job.result is not None and job.result.model is not None:
        return job.result.model.digest
    when = "it left none" if job.ended else "wait for its end"
    raise FailedPreconditionError(
        f"{job.id} has no model: it is {job.state.replace('_', ' ')} ({job.reason}); {when}.",
        reason="JOB_HAS_NO_MODEL",
        metadata={"job_id": job.id, "state": job.state},
    )
