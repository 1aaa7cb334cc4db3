"""What is asked of the trainer: a job, or a script."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Literal

Backend = Literal["auto", "gloo", "nccl"]
RobustRule = Literal["off", "auto", "trimmed-mean", "median", "krum", "centred-clipping"]


@dataclass(frozen=True)
class JobSpec:
    """What is asked of the trainer, by the names of `Client.train`; None: left to the task or to the nodes.

    `script_arguments` are a script's, where `task` is one. In a job's snapshot `code` and `initial_model` are
    digests, and `sync` and `plan` have all their pairs.
    """

    task: str
    _: KW_ONLY
    requests: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    policy: str = ""
    seed: int = 0
    min_workers: int | None = None
    max_workers: int | None = None
    backend: Backend = "auto"
    name: str = ""
    initial_model: str = ""
    code: str | Path = ""
    min_slots: int = 1
    equal_shares: bool = False
    robust: RobustRule = "off"
    sync: str = ""
    plan: str = ""
    accelerator: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    script_arguments: Sequence[str] = ()


@dataclass(frozen=True)
class ScriptSpec:
    """What is asked of the trainer, by the names of `Client.run_script`; None: left to the nodes."""

    script: str | Path
    script_arguments: Sequence[str] = ()
    _: KW_ONLY
    code: str | Path = ""
    requests: int | None = None
    min_workers: int | None = None
    max_workers: int | None = None
    max_restarts: int | None = None
    policy: str = ""
    name: str = ""
    min_slots: int = 1
    accelerator: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
