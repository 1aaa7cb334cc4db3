"""The inference server's settings."""

from dataclasses import dataclass

from peerloom.errors import ConfigurationError, InvalidArgumentError
from peerloom.kit.checks import check_address, check_range, check_text
from peerloom.kit.config import knob


@dataclass(frozen=True)
class InferenceConfig:
    """Answers with trained models; started by a node's agent when it is first asked for."""

    listen: str = knob("127.0.0.1:0", "host:port to serve on; port 0 takes a free one")
    folder: str = knob("", "folder for the models' files; its agent empties it")
    agent: str = knob("", "host:port of the node's agent, which brings the models")
    registry: str = knob(
        "",
        "host:port of the registry, or of its replicas, to report callers that are nodes; empty: nobody is",
    )
    memory_bytes: int = knob(
        2 * 1024**3, "memory for models; more saves loading again, less leaves it to others on this machine"
    )
    modules: tuple[str, ...] = knob(
        (), "modules whose tasks' models are built besides the built-in ones; importing one runs it"
    )
    threads: int = knob(1, "threads that compute; more than the idle cores makes all of them wait")
    accelerator: str = knob("cpu", "cpu or cuda")
    batch_samples: int = knob(
        256, "samples computed together; more serve more clients, and let each wait longer"
    )
    batch_wait_s: float = knob(
        0.001,
        "how long requests wait for others after a batch that held several; longer makes larger batches and "
        "later answers",
    )
    queue_samples: int = knob(
        8192, "samples that may wait; further callers are sent away with the time to come again"
    )
    session_limit: int = knob(256, "sessions of split models at once; each keeps its activations in memory")
    identity: str = knob("", "PEM file that this server proves itself with; empty: plain")
    allow_plain: bool = knob(False, "serve without certificates beyond loopback, on a network that you trust")
    log_level: str = knob("info", "debug, info, warning or error")

    def __post_init__(self) -> None:
        try:
            check_text("folder", self.folder, low=1, high=4096)
            check_address("agent", self.agent)
            check_range("memory_bytes", self.memory_bytes, 0, 2**60)
            check_range("threads", self.threads, 1, 1024)
            check_range("batch_samples", self.batch_samples, 1, 65536)
            check_range("batch_wait_s", self.batch_wait_s, 0, 1)
            check_range("queue_samples", self.queue_samples, 1, 10**9)
            check_range("session_limit", self.session_limit, 1, 10**6)
            if self.accelerator not in ("cpu", "cuda"):
                raise InvalidArgumentError.of_field("accelerator", self.accelerator, "cpu or cuda")
        except InvalidArgumentError as error:
            raise ConfigurationError(error.message, metadata=error.metadata) from None
