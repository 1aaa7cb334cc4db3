"""What the tests of inference share: models as a training would leave them, and who serves."""

from pathlib import Path

import psutil
import torch
from safetensors.torch import save_file

from peerloom.artifacts.transfer import put_file
from peerloom.kit.dialing import Dialer
from peerloom.v1.artifact_pb2 import Artifact, ArtifactKind
from peerloom.worker.model_origin import ModelOrigin
from peerloom.worker.task import load_task

TEXT_ARGUMENTS = {"width": "32", "depth": "3", "heads": "2", "context": "96"}


def make_model(
    folder: Path,
    task: str,
    arguments: dict[str, str],
    shape: tuple[int, ...],
    dtype: str,
    *,
    declared: bool = False,
) -> Path:
    """A model with parameters by chance from a seed, saved with what builds it, and what it takes raw."""
    torch.manual_seed(11)
    loaded = load_task(task, arguments)
    path = folder / f"{task}{'-declared' if declared else ''}.safetensors"
    raw = loaded.raw_input if declared else None
    origin = ModelOrigin(task, arguments, shape, dtype, (), raw)
    save_file(loaded.model().state_dict(), path, origin.to_metadata())
    return path


async def store(address: str, path: Path) -> str:
    """Gives the file to an agent; its digest."""
    async with Dialer().artifacts(address) as agent:
        kept = await put_file(agent, path, Artifact(kind=ArtifactKind.ARTIFACT_KIND_MODEL, name=path.name))
    return kept.digest


def inference_process(agent_pid: int) -> psutil.Process:
    """The inference server that an agent started."""
    children = psutil.Process(agent_pid).children()
    return next(child for child in children if "peerloom.inference.server" in child.cmdline())
