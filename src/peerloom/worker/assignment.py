"""What an agent tells a waiting worker process, and whether the trainer says the same."""

import dataclasses
import json
from collections.abc import Mapping, Sequence

from peerloom.sandbox.grant import Grant
from peerloom.v1.trainer_pb2 import JobSpec

TRAINER_FILE = "trainer-address"  # in a worker's folder: host:port of the trainer that runs its job now


@dataclasses.dataclass(frozen=True)
class Work:
    """What the node's owner agreed to: for whom to train what, with which data, code and parameters.

    With `script_arguments` the task is the path of a script in the code, to be started with these.
    """

    trainer_address: str
    task: str
    task_arguments: Mapping[str, str] = dataclasses.field(default_factory=dict)
    code_digest: str = ""
    initial_model_digest: str = ""
    script_arguments: Sequence[str] | None = None

    def why_not(self, spec: JobSpec) -> str:
        """What a trainer wants that the owner didn't agree to; empty when it is the same."""
        for name in ("task", "task_arguments", "code_digest", "initial_model_digest"):
            agreed, wanted = getattr(self, name), getattr(spec, name)
            if isinstance(agreed, Mapping):
                agreed, wanted = dict(agreed), dict(wanted)
            if agreed != wanted:
                return (
                    f"the trainer wants {name} {wanted!r}, but the node agreed to {agreed!r} when it was "
                    "asked for work"
                )
        wanted_arguments = list(spec.script.arguments) if spec.HasField("script") else None
        agreed_arguments = None if self.script_arguments is None else list(self.script_arguments)
        if agreed_arguments != wanted_arguments:
            return (
                "the trainer wants other script arguments than the node agreed to when it was asked for work"
            )
        return ""


@dataclasses.dataclass(frozen=True)
class Assignment:
    """One line of JSON on the process's standard input.

    `interface` is the network interface that the collectives use, `threads` the number of threads that
    one operator may use, `device_index` the GPU where `accelerator_kind` is "cuda". With `secret` the worker
    proves to the trainer that it is the one that was started. `folder` is the worker's own, for all that it
    writes; `data_roots` are the folders whose files it may read. `grant` is what its sandbox leaves it;
    without one it is in none. `identity` is the PEM file that it proves itself with, for this job, which its
    agent renews; empty: plain. With it gradients travel by TLS, unless `plain_collectives` says otherwise.
    Where the node `is_relayed`, others reach the worker's ports where its agent says. `traceparent` names the
    trace that the worker belongs to; empty: none.
    """

    worker_id: str
    job_id: str
    work: Work
    agent_address: str
    slot: int
    accelerator_kind: str
    device_index: int
    interface: str
    threads: int
    log_path: str
    secret: str = dataclasses.field(repr=False)
    folder: str = ""
    data_roots: tuple[str, ...] = ()
    identity: str = ""
    grant: Grant | None = None
    plain_collectives: bool = False
    is_relayed: bool = False
    traceparent: str = ""

    @classmethod
    def from_json(cls, line: str) -> "Assignment":
        """Reads the line. Raises KeyError, TypeError or ValueError for one that isn't an assignment."""
        told = json.loads(line)
        grant = Grant.from_dict(told["grant"]) if told.get("grant") else None
        nested = {"work": Work(**told["work"]), "data_roots": tuple(told["data_roots"]), "grant": grant}
        return cls(**{**told, **nested})

    def to_json(self) -> str:
        """The line, without its end."""
        return json.dumps(dataclasses.asdict(self))
