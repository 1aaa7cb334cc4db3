"""The node agent's settings."""

import sys
from dataclasses import dataclass
from pathlib import Path

from peerloom.errors import ConfigurationError, InvalidArgumentError
from peerloom.kit.checks import check_labels, check_name, check_range
from peerloom.kit.config import knob
from peerloom.kit.metrics import METRICS_HELP
from peerloom.kit.replica_addresses import check_addresses
from peerloom.services.node_agent.owner.policy import Hours, OwnerLimits
from peerloom.services.node_agent.tunnels.relay_limits import RelayLimits, parse_ports

_ACCELERATORS = ("auto", "cpu", "cuda")
SANDBOX_LABEL = "sandbox"
_LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True)
class NodeConfig:
    """Lends this machine's slots to jobs."""

    listen: str = knob("127.0.0.1:0", "host:port to serve on; port 0 takes a free one")
    advertise: str = knob(
        "",
        "host or host:port at which peers reach this node; empty: where it listens, or, if that is "
        "everywhere, the address that leads to the registry",
    )
    state: str = knob(
        ".peerloom/node", "folder for the node's identity, artifacts and logs; of one agent only"
    )
    registry: str = knob(
        "127.0.0.1:7400", "host:port of the registry; of one with standbys all of theirs, with commas"
    )
    name: str = knob("", "the node's name, unique among nodes; empty: the host's name")
    slots: int = knob(
        -1,
        "workers that may run at once; -1: one for each GPU, or 1 without GPU; 0: stores and relays only. "
        "More finish more jobs and slow down everything else on this machine",
    )
    accelerator: str = knob(
        "auto", "what a slot is: cpu, cuda, or auto (cuda where each slot can have its own GPU)"
    )
    labels: tuple[str, ...] = knob((), "words for selection: k=v,k=v; at most 31")
    artifact_limit_bytes: int = knob(
        20 * 1024**3, "disk for artifacts; more saves fetching again, less leaves the disk to the owner"
    )
    upload_limit_bytes_per_s: float = knob(
        0.0,
        "limit for sending artifacts to peers, bytes a second; 0: none. Lower keeps more of the line for the "
        "owner, and makes others wait longer",
    )
    bulk_transfers: bool = knob(
        True,
        "send artifacts on a second port: by TLS where this node has an identity, over plain TCP where it "
        "serves without TLS; without it they go through gRPC, at a higher cost in processor time",
    )
    memory_limit_bytes: int = knob(
        0,
        "memory that all workers may ask for, and use, together; 0: what is free. Lower keeps more for the "
        "owner, and takes slots back from workers that grow beyond it",
    )
    worker_tasks: int = knob(
        1024,
        "processes and threads of one worker, or of the inference server, with all it starts, where this "
        "agent can make cgroups. Fewer leave more to the owner, and fail what loads data with many processes",
    )
    lend_hours: tuple[str, ...] = knob(
        (),
        "when to lend, in local time, e.g. 22:00-07:00,12:00-13:00; empty: always. Outside of them workers "
        "hand over and leave",
    )
    allow_code: bool = knob(
        False,
        "whether jobs may bring code along. True lets whoever reaches the trainer run anything here that the "
        "sandbox leaves",
    )
    no_sandbox: bool = knob(
        False,
        "let workers and the inference server do whatever this user may. True is for tasks that the sandbox "
        "stops (UDP, files outside of --data-root), and for kernels without one",
    )
    data_root: tuple[str, ...] = knob(
        (),
        "folder whose files jobs may name in task arguments, e.g. /data; may be given several times; none: "
        "jobs train on artifacts alone. More lets trainings read more of this machine, as this user",
    )
    lend_only_idle: bool = knob(
        False, "lend only while nobody types at a terminal and others leave the processor alone"
    )
    idle_load: float = knob(
        0.25,
        "with lend_only_idle: part of all cores, 0 to 1, that others may use. Higher lends more, lower gives "
        "way sooner",
    )
    idle_wait_s: float = knob(
        60.0,
        "with lend_only_idle: how long it must be quiet before lending. Lower lends more, and more fitfully",
    )
    processor_share: float = knob(
        1.0,
        "part of the cores that all workers together may run on, above 0 to 1. Lower keeps more for the "
        "owner",
    )
    handover_grace_s: float = knob(
        10.0,
        "how long a worker that has to go may wait for its replacement. Higher loses less speed, lower gives "
        "the machine back sooner",
    )
    threads_per_slot: int = knob(
        0,
        "threads of one worker; 0: an equal share of the cores. More than the share makes workers wait for "
        "each other",
    )
    keep_warm: bool = knob(
        True,
        "keep a process ready that workers are forked from. True starts and replaces them in milliseconds, "
        "false saves about 250 MB of memory and costs each start some seconds",
    )
    reservation_s: float = knob(
        30.0,
        "how long accepted slots wait for their workers; longer bears slower trainers, and leaves slots idle "
        "longer when one dies",
    )
    measure_interval_s: float = knob(
        3600.0,
        "how often an idle machine is measured anew (matmul, memory, a training step); 0: only its matmul "
        "and memory, at the start. Shorter notices a change sooner, and takes an idle core for 4 s each time",
    )
    log_limit_bytes: int = knob(4 * 1024**2, "output kept of each worker; the oldest goes first")
    log_jobs: int = knob(50, "jobs whose output is kept; more needs more disk")
    inference: bool = knob(
        True, "answer with models that the node holds, when asked; false leaves it to others"
    )
    inference_memory_bytes: int = knob(
        2 * 1024**3,
        "memory for models that answer; more saves loading them again, less leaves it to jobs and the owner",
    )
    inference_modules: tuple[str, ...] = knob(
        (),
        "modules installed here whose tasks' models this node answers with; built-in tasks' "
        "always are. More lets whoever sends a model import more",
    )
    join: str = knob(
        "",
        "what `peerloom token create --role node` printed: with it this node joins, once, and what it gets "
        "lies in the state folder. Empty, and nothing there: plain, on loopback only",
    )
    relay: bool = knob(
        False,
        "pass connections on to nodes that can't be reached (NAT, firewalls). True lets them train and "
        "serve, takes twice what they move of this machine's line, and needs ports that others reach "
        "(relay_ports)",
    )
    relay_ports: str = knob(
        "",
        "with relay: the ports to open, e.g. 7500-7600; empty: any free ones. It takes one for all, and 3 to "
        "5 for each node",
    )
    relay_tunnels: int = knob(
        32,
        "with relay: nodes at most, half of them of one owner; more helps more, and shares the line further",
    )
    relay_connections: int = knob(
        512,
        "with relay: connections at once, half of them of one node; each takes two threads and about 1 MB",
    )
    relay_limit_bytes_per_s: float = knob(
        0.0,
        "with relay: bytes a second passed on, of both directions together; 0: no limit. Lower keeps more of "
        "the line for the owner, and slows the jobs of those behind it",
    )
    allow_plain: bool = knob(False, "serve without certificates beyond loopback, on a network that you trust")
    metrics: str = knob("", METRICS_HELP)
    log_level: str = knob("info", "debug, info, warning or error")
    worker_command: tuple[str, ...] = knob(
        (sys.executable, "-m", "peerloom.worker"),
        "command that starts the process that workers are forked from, parts separated by commas",
    )
    measure_command: tuple[str, ...] = knob(
        (sys.executable, "-m", "peerloom.worker.speed"),
        "command that measures one slot, parts separated by commas; it gets the accelerator and the threads",
    )
    plain_collectives: bool = knob(
        False,
        "let workers exchange gradients and parameters in the clear although this node has an identity: "
        "whoever is on the way between two nodes reads and changes them. True is faster, and the only way "
        "for NCCL; all nodes of a job must say the same",
    )

    def __post_init__(self) -> None:
        try:
            self._check()
        except InvalidArgumentError as error:
            raise ConfigurationError(error.message, metadata=error.metadata) from None

    def state_folder(self) -> Path:
        """The state folder, absolute, so that workers find it too."""
        return Path(self.state).absolute()

    def data_roots(self) -> tuple[str, ...]:
        """The folders that the owner lends, absolute, so that workers find them too."""
        return tuple(str(Path(root).expanduser().absolute()) for root in self.data_root)

    def owner_limits(self) -> OwnerLimits:
        """When the owner lends. Raises InvalidArgumentError for hours that can't be read."""
        hours = tuple(Hours.parse(text) for text in self.lend_hours)
        return OwnerLimits(hours, self.lend_only_idle, self.idle_load, self.idle_wait_s)

    def relay_limits(self) -> RelayLimits:
        """What a relay gives. Raises InvalidArgumentError for ports that can't be read."""
        ports = parse_ports(self.relay_ports)
        return RelayLimits(self.relay_tunnels, self.relay_connections, self.relay_limit_bytes_per_s, ports)

    def label_map(self) -> dict[str, str]:
        """The labels by key. Raises ConfigurationError for one without '='."""
        for label in self.labels:
            if "=" not in label:
                raise ConfigurationError(f"the label {label!r} has no value; write it as {label}=VALUE.")
        return dict(label.split("=", 1) for label in self.labels)

    def _check(self) -> None:
        check_addresses("registry", self.registry)
        check_range("slots", self.slots, -1, 1024)
        check_range("threads_per_slot", self.threads_per_slot, 0, 1024)
        check_range("reservation_s", self.reservation_s, 0.1, 3600)
        check_range("upload_limit_bytes_per_s", self.upload_limit_bytes_per_s, 0, 2**60)
        check_range("artifact_limit_bytes", self.artifact_limit_bytes, 0, 2**60)
        check_range("memory_limit_bytes", self.memory_limit_bytes, 0, 2**60)
        check_range("worker_tasks", self.worker_tasks, 16, 2**22)
        check_range("measure_interval_s", self.measure_interval_s, 0, 1e9)
        check_range("idle_load", self.idle_load, 0.01, 1)
        check_range("idle_wait_s", self.idle_wait_s, 0, 86_400)
        check_range("processor_share", self.processor_share, 0.01, 1)
        check_range("handover_grace_s", self.handover_grace_s, 0, 3600)
        self.owner_limits()
        check_range("relay_tunnels", self.relay_tunnels, 1, 10_000)
        check_range("relay_connections", self.relay_connections, 1, 10_000)
        check_range("relay_limit_bytes_per_s", self.relay_limit_bytes_per_s, 0, 2**60)
        self.relay_limits()
        check_range("inference_memory_bytes", self.inference_memory_bytes, 0, 2**60)
        check_range("log_limit_bytes", self.log_limit_bytes, 4096, 2**40)
        check_range("log_jobs", self.log_jobs, 1, 100_000)
        if self.name:
            check_name("name", self.name)
        labels = self.label_map()
        if SANDBOX_LABEL in labels:
            limit = f"other keys: what {SANDBOX_LABEL!r} says is found by the agent"
            raise InvalidArgumentError.of_field("labels", SANDBOX_LABEL, limit)
        check_labels("labels", {**labels, SANDBOX_LABEL: ""})
        if self.accelerator not in _ACCELERATORS:
            raise InvalidArgumentError.of_field("accelerator", self.accelerator, "auto, cpu or cuda")
        if self.log_level not in _LOG_LEVELS:
            raise InvalidArgumentError.of_field("log_level", self.log_level, "debug, info, warning or error")
        if not self.worker_command:
            raise InvalidArgumentError.of_field("worker_command", "", "a command")
        if not self.measure_command:
            raise InvalidArgumentError.of_field("measure_command", "", "a command")
