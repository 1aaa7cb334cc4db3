"""What the processes of this node that work for others are given, by its owner's settings."""

from pathlib import Path

from peerloom.errors import ConfigurationError
from peerloom.sandbox.grant import Grant
from peerloom.sandbox.kernel_support import SandboxSupport
from peerloom.services.node_agent.config import NodeConfig
from peerloom.services.node_agent.owner.inventory import LentMachine

# The owner's limit is kept by asking workers to leave, which takes seconds; this stops a jump past it.
_MEMORY_JUMP = 2


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
