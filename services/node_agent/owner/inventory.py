"""What this machine has: GPUs as the driver's own tool lists them, else its processor; installed packages."""

import asyncio
import importlib
import importlib.util
import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from peerloom.errors import ConfigurationError
from peerloom.kit.logs import get_logger
from peerloom.v1.common_pb2 import Accelerator

_log = get_logger()
_QUERY_S = 10.0


@dataclass(frozen=True)
class Gpu:
    """One GPU as nvidia-smi lists it."""

    uuid: str
    model: str
    memory_bytes: int


def is_installed(package: str) -> bool:
    """Whether a top-level package is there; it isn't imported to find out."""
    importlib.invalidate_caches()
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _has_torch() -> bool:
    return is_installed("torch")


@dataclass(frozen=True)
class LentMachine:
    """What the node lends: `slots` slots of one kind, each with `threads` threads.

    `has_torch` is asked for each request, as the owner may install it; scripted workers need none.
    """

    slots: int
    accelerator_kind: str
    accelerators: tuple[Accelerator, ...]
    device_memory_bytes: int
    threads: int
    has_torch: Callable[[], bool] = _has_torch


async def find_gpus(environment: Mapping[str, str] = os.environ) -> list[Gpu]:
    """The GPUs that this process may use, in CUDA's order; none without a driver."""
    found = parse_gpus(await ask_nvidia_smi("uuid,name,memory.total"))
    return visible_gpus(found, environment.get("CUDA_VISIBLE_DEVICES"))


async def ask_nvidia_smi(fields: str) -> str:
    """A line for each GPU with these fields, bytes as MiB; empty without a driver that answers."""
    if shutil.which("nvidia-smi") is None:
        return ""
    arguments = (f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    try:
        process = await asyncio.create_subprocess_exec(
            "nvidia-smi", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
    except OSError as error:  # no process can be started just now
        _log.warning("gpu_query_failed", reason=str(error))
        return ""
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _QUERY_S)
    except TimeoutError:
        _log.warning("gpu_query_failed", reason=f"nvidia-smi did not answer within {_QUERY_S:g} s")
        return ""
    finally:
        if process.returncode is None:  # too late, or the agent stops
            process.kill()
            await process.wait()
    return output.decode(errors="replace") if process.returncode == 0 else ""


def parse_gpus(text: str) -> list[Gpu]:
    """nvidia-smi's lines "uuid, name, MiB"; others are left out."""
    gpus = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 3 and parts[2].isdigit():
            gpus.append(Gpu(parts[0], parts[1], int(parts[2]) * 1024**2))
    return gpus


def visible_gpus(gpus: Sequence[Gpu], setting: str | None) -> list[Gpu]:
    """Those that CUDA_VISIBLE_DEVICES leaves, in its order; it ends at an unknown one, as CUDA's does."""
    if setting is None:
        return list(gpus)
    visible = []
    for part in (part.strip() for part in setting.split(",")):
        if part.isdigit():
            match = gpus[int(part)] if int(part) < len(gpus) else None
        else:
            match = next((gpu for gpu in gpus if part and gpu.uuid.startswith(part)), None)
        if match is None:
            break
        visible.append(match)
    return visible


def describe_machine(
    gpus: Sequence[Gpu], wanted_slots: int, accelerator: str, threads: int, cores: int, processor: Accelerator
) -> LentMachine:
    """What to lend of a machine with these `gpus`, else its `processor`, by the owner's settings.

    `wanted_slots` -1 is one slot a GPU, or 1 without; `threads` 0 an equal share of the `cores`. A GPU serves
    one slot only. Raises ConfigurationError for "cuda" with more slots than GPUs.
    """
    enough = bool(gpus) and wanted_slots <= len(gpus)
    if accelerator == "cuda" and not enough:
        raise ConfigurationError(
            f"accelerator is cuda with {wanted_slots} slots, but this machine has {len(gpus)} GPUs to lend. "
            "Lower slots, or set accelerator to cpu."
        )
    on_gpu = enough and accelerator != "cpu"
    slots = wanted_slots if wanted_slots >= 0 else (len(gpus) if on_gpu else 1)
    threads = threads or max(1, cores // max(1, slots))
    if not on_gpu or slots == 0:
        return LentMachine(slots, "cpu", (processor,), processor.memory_bytes, threads)
    lent = gpus[:slots]
    counts = Counter((gpu.model, gpu.memory_bytes) for gpu in lent)
    accelerators = tuple(
        Accelerator(kind="cuda", model=model, count=count, memory_bytes=memory_bytes)
        for (model, memory_bytes), count in counts.items()
    )
    return LentMachine(slots, "cuda", accelerators, min(gpu.memory_bytes for gpu in lent), threads)


def read_processor(cpu_list: Path = Path("/proc/cpuinfo")) -> Accelerator:
    """This machine's processor and its memory."""
    model = "unknown processor"
    if cpu_list.exists():
        for line in cpu_list.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return Accelerator(kind="cpu", model=model, count=1, memory_bytes=psutil.virtual_memory().total)


def usable_cores() -> list[int]:
    """Numbers of the cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def lent_cores(usable: Sequence[int], share: float) -> list[int]:
    """The cores that workers may run on: this share (above 0 to 1) of the usable ones, 1 at least.

    The last ones, as much else begins at the first.
    """
    return list(usable)[-max(1, int(len(usable) * share)) :]


def is_known_task(task: str) -> bool:
    """Whether a task is built in (no ':') or its top-level package is installed here."""
    module, colon, _ = task.partition(":")
    return not colon or is_installed(module.partition(".")[0])
