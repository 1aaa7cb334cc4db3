"""What the processes of this node that work for others are given, by its owner's settings."""

import dataclasses
from pathlib import Path

from peerloom.errors import ConfigurationError
from peerloom.kit.logs import get_logger
from peerloom.sandbox.bubblewrap import in_bubblewrap, why_no_bubblewrap
from peerloom.sandbox.cgroups import CgroupParent, GroupLimits, open_parent
from peerloom.sandbox.grant import Grant
from peerloom.sandbox.kernel_support import SandboxSupport, find_support
from peerloom.services.node_agent.config import NodeConfig
from peerloom.services.node_agent.owner.inventory import LentMachine

# The owner's limit is kept by asking workers to leave, which takes seconds; this stops a jump past it.
_MEMORY_JUMP = 2
# What a worker writes to of the memory it was forked with, and what the kernel keeps for it: its group counts
# that too.
_FORKED_BYTES = 256 * 1024**2
_ANSWERING_BYTES = 1024**3
# Below the agent's state folder.
WORKERS_FOLDER, LOGS_FOLDER = "workers", "logs"
_log = get_logger()


def worker_grant(config: NodeConfig, machine: LentMachine, folder: Path) -> Grant | None:
    """For a worker whose folder this is; None when the owner wants no sandbox."""
    if config.no_sandbox:
        return None
    on_gpu = machine.accelerator_kind == "cuda"
    # What CUDA maps of the card's memory may count too, so there is no limit that fits.
    memory_limit_bytes = 0 if on_gpu else _MEMORY_JUMP * config.memory_limit_bytes
    return Grant(
        folder=str(folder),
        reads=config.data_roots(),
        private=str(config.state_folder()),
        on_gpu=on_gpu,
        file_limit_bytes=config.artifact_limit_bytes,
        memory_limit_bytes=memory_limit_bytes,
    )


def worker_limits(config: NodeConfig) -> GroupLimits:
    """Of a worker with all that it starts."""
    lent_bytes = config.memory_limit_bytes
    memory_bytes = _FORKED_BYTES + _MEMORY_JUMP * lent_bytes if lent_bytes else 0
    return GroupLimits(memory_bytes, config.worker_tasks)


def inference_limits(config: NodeConfig) -> GroupLimits:
    """Of the inference server: its models twice, as they are loaded and moved, and what answering takes."""
    memory_bytes = _MEMORY_JUMP * config.inference_memory_bytes + _ANSWERING_BYTES
    return GroupLimits(memory_bytes, config.worker_tasks)


def find_cgroups(config: NodeConfig) -> CgroupParent | None:
    """Room for a cgroup for each process that works for others; None where there is none. May block."""
    if config.no_sandbox:
        return None
    parent, why_not = open_parent(config.state_folder())
    if parent is None:
        _log.info("no_cgroups", reason=why_not)
    return parent


def find_layers(config: NodeConfig) -> SandboxSupport:
    """What holds workers here; whether bubblewrap works is tried where jobs may bring code. May block."""
    support = find_support()
    if not config.allow_code or config.no_sandbox or not support.is_whole:
        return support
    why_not = why_no_bubblewrap()
    if why_not:
        _log.warning("no_second_layer", reason=why_not, holds=str(support))
    return dataclasses.replace(support, bubblewrap=not why_not)


def wrapped_command(config: NodeConfig, machine: LentMachine) -> list[str]:
    """What starts the process, inside bubblewrap, that workers of jobs with code are forked from."""
    state = config.state_folder()
    grant = Grant(
        folder=str(state / WORKERS_FOLDER),
        reads=config.data_roots(),
        private=str(state),
        on_gpu=machine.accelerator_kind == "cuda",
    )
    return in_bubblewrap(config.worker_command, grant, [str(state / LOGS_FOLDER)])


def inference_grant(config: NodeConfig, machine: LentMachine, folder: Path) -> Grant | None:
    """For the inference server, which keeps models' files in `folder`; None as above."""
    if config.no_sandbox:
        return None
    return Grant(
        folder=str(folder),
        private=str(config.state_folder()),
        on_gpu=machine.accelerator_kind == "cuda",
        file_limit_bytes=config.artifact_limit_bytes,
    )


def sandbox_label(config: NodeConfig, support: SandboxSupport) -> str:
    """What the node's record says of its sandbox: its parts, "none", or "off" where the owner wants none."""
    return "off" if config.no_sandbox else str(support)


def check_sandbox(config: NodeConfig, support: SandboxSupport) -> None:
    """Raises ConfigurationError for an owner who lets code in where nothing would hold it."""
    if config.allow_code and not config.no_sandbox and not support.is_whole:
        raise ConfigurationError(
            f"--allow-code lets jobs bring code, and nothing would hold it: {support.why_not}. Leave "
            "--allow-code away, or say --no-sandbox too: then that code may do whatever this user may."
        )
