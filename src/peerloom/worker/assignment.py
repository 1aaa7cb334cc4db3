"""What an agent tells a waiting worker process."""

import dataclasses
import json


@dataclasses.dataclass(frozen=True)
class Assignment:
    """One line of JSON on the process's standard input.

    `interface` is the network interface that the collectives use, `threads` the number of threads that
    one operator may use, `device_index` the GPU where `accelerator_kind` is "cuda". With `secret` the worker
    proves to the trainer that it is the one that was started.
    """

    worker_id: str
    job_id: str
    trainer_address: str
    agent_address: str
    slot: int
    accelerator_kind: str
    device_index: int
    interface: str
    threads: int
    log_path: str
    secret: str = dataclasses.field(repr=False)
    tls_ca: str = ""

    @classmethod
    def from_json(cls, line: str) -> "Assignment":
        """Reads the line. Raises TypeError or ValueError for one that isn't an assignment."""
        return cls(**json.loads(line))

    def to_json(self) -> str:
        """The line, without its end."""
        return json.dumps(dataclasses.asdict(self))
