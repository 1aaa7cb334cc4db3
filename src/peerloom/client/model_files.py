"""Models fetched to here: the file as it is kept, or the folder that another library loads."""

import asyncio
import importlib.util
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

from peerloom.artifacts.bundles import unpack
from peerloom.client.artifacts import AsyncArtifacts, make_room
from peerloom.client.conversions.jobs import job_of
from peerloom.client.models import find_digest, find_model, target_file
from peerloom.client.remote_services import Services
from peerloom.client.types.artifacts import ModelFormat
from peerloom.errors import FailedPreconditionError, InvalidArgumentError, PeerloomError
from peerloom.kit.checks import check_range
from peerloom.v1.trainer_pb2 import GetJobRequest

FORMATS: tuple[str, ...] = get_args(ModelFormat)
SHARD_BYTES = 5_000_000_000


async def fetch_model(
    services: Services,
    model: str,
    path: str | Path,
    format: ModelFormat = "safetensors",
    shard_bytes: int = SHARD_BYTES,
    checkpoint: bool = False,
) -> Path:
    """Writes a model, or a job's newest `checkpoint`, to `path`; returns where it lies.

    What is written appears whole or not at all: a safetensors file, which replaces what is there, or for the
    other formats a new folder. Raises what `find_digest`, `AsyncArtifacts.get` and the formats' writers
    raise, InvalidArgumentError where nothing can be written, FailedPreconditionError without torch, and for
    a job without a checkpoint.
    """
    if format not in FORMATS:
        raise InvalidArgumentError.of_field("format", format, f"one of {', '.join(FORMATS)}")
    check_range("shard_bytes", shard_bytes, 1, 2**63 - 1)
    if format == "hugging-face" and checkpoint:
        limit = "safetensors or dcp: a checkpoint doesn't say what model it is of"
        raise InvalidArgumentError.of_field("format", format, limit)
    if format == "safetensors":
        digest = await _digest(services, model, checkpoint)
        target = await asyncio.to_thread(target_file, path, digest)
        await asyncio.to_thread(make_room, target)
        return await AsyncArtifacts(services).get(digest, target)
    folder = await asyncio.to_thread(_new_folder, path)
    digest = await _digest(services, model, checkpoint)
    with TemporaryDirectory(prefix="peerloom-") as fetched:
        file = await AsyncArtifacts(services).get(digest, Path(fetched) / "stored.safetensors")
        brought = await _code_of(services, model, Path(fetched)) if format == "hugging-face" else []
        await asyncio.to_thread(make_room, folder)
        # Here, as it brings torch.
        from peerloom.model_formats.writing import write_format

        await asyncio.to_thread(write_format, file, digest, format, folder, shard_bytes, brought)
    return folder


async def _digest(services: Services, model: str, checkpoint: bool) -> str:
    if not checkpoint:
        return await find_digest(services, model)
    if not model.startswith("job-"):
        raise InvalidArgumentError.of_field("model", model, "a job's id, where its checkpoint is asked for")
    job = job_of((await services.trainer.call(lambda stub: stub.GetJob, GetJobRequest(job_id=model))).job)
    if not job.checkpoint:
        when = "one that succeeded leaves its model only" if job.ended else "the first isn't stored yet"
        raise FailedPreconditionError(
            f"{job.id} has no checkpoint: it is {job.state.replace('_', ' ')}; {when}.",
            reason="JOB_HAS_NO_CHECKPOINT",
            metadata={"job_id": job.id, "state": job.state},
        )
    return job.checkpoint


async def _code_of(services: Services, model: str, folder: Path) -> list[Path]:
    """The code of the job that made the model, where a tokenizer may lie; nothing if nobody keeps it."""
    try:
        made = await find_model(services, model)
        found = await services.trainer.call(lambda stub: stub.GetJob, GetJobRequest(job_id=made.job_id))
        if not found.job.spec.code_digest:
            return []
        bundle = await AsyncArtifacts(services).get(found.job.spec.code_digest, folder / "code.tar")
        await asyncio.to_thread(unpack, bundle, folder / "code")
    except PeerloomError:
        return []
    return [folder / "code"]


def _new_folder(path: str | Path) -> Path:
    folder = Path(path).expanduser().absolute()
    if folder.exists():
        raise InvalidArgumentError.of_field("path", str(folder), "a folder that doesn't exist yet")
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("safetensors") is None:
        raise FailedPreconditionError(
            "This format is written by torch, which isn't installed here: pip install 'peerloom[train]', or "
            "take the format safetensors.",
            reason="TORCH_NOT_INSTALLED",
        )
    return folder
