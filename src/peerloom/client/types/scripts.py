"""What is asked of a script."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path


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
