"""Models' files for the benchmarks of inference, with parameters by chance from a seed."""

from pathlib import Path

import torch
from safetensors.torch import save_file

from peerloom import Embedded
from peerloom.artifacts.transfer import put_file
from peerloom.kit.dialing import Dialer
from peerloom.v1.artifact_pb2 import Artifact, ArtifactKind
from peerloom.worker.model_origin import ModelOrigin
from peerloom.worker.task import load_task


def made(folder: Path, task: str, arguments: dict[str, str], shape: tuple[int, ...], dtype: str) -> Path:
    """The file, under the task's name; `shape` and `dtype` are those of an input."""
    torch.manual_seed(11)
    path = folder / f"{task.rpartition(':')[2]}.safetensors"
    model = load_task(task, arguments).model()
    save_file(model.state_dict(), path, ModelOrigin(task, arguments, shape, dtype).to_metadata())
    return path


async def given(
    system: Embedded, folder: Path, task: str, arguments: dict[str, str], shape: tuple[int, ...], dtype: str
) -> str:
    """The digest of such a file, which a running system's first node has now."""
    path = made(folder, task, arguments, shape, dtype)
    header = Artifact(kind=ArtifactKind.ARTIFACT_KIND_MODEL, name="benchmark")
    async with Dialer().artifacts(system.addresses["node-1"]) as agent:
        return (await put_file(agent, path, header)).digest
