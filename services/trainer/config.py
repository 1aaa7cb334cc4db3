"""The trainer's knobs."""

from dataclasses import dataclass
from pathlib import Path

from peerloom.errors import ConfigurationError, InvalidArgumentError
from peerloom.kit.checks import check_range
from peerloom.kit.config import knob
from peerloom.kit.metrics import METRICS_HELP
from peerloom.kit.replica_addresses import check_addresses

EVALUATE = ("auto", "off")


@dataclass(frozen=True)
class TrainerConfig:
    """Takes jobs from submission to a model."""

    listen: str = knob("127.0.0.1:7402", "host:port to serve at; port 0 takes a free one")
    advertise: str = knob("", "host:port that others reach it at; empty: the listening address")
    registry: str = knob(
        "127.0.0.1:7400", "host:port of the registry; of one with standbys all of theirs, with commas"
    )
    state: str = knob("./trainer-state", "folder for the database and the models")
    database: str = knob("", "SQLAlchemy URL; empty: SQLite in the state folder")
    request_timeout_s: float = knob(
        5.0, "wait for a node's answer; higher: slow nodes get a chance; lower: dead ones hold up less"
    )
    start_timeout_s: float = knob(
        60.0, "wait for started workers to come; higher: slow imports are forgiven; lower: jobs fail sooner"
    )
    reconnect_timeout_s: float = knob(
        15.0, "wait for a worker whose line broke; higher: forgives the network; lower: goes on sooner"
    )
    agent_timeout_s: float = knob(
        1.0, "wait for a worker whose line broke and whose agent is away too; lower: goes on sooner"
    )
    checkpoint_interval_s: float = knob(
        10.0,
        "between checkpoints, or ten times what moving one takes, if that is more; lower: less is done again "
        "when all workers die; higher: less traffic",
    )
    collective_timeout_s: float = knob(
        60.0, "last resort for a collective that nobody aborted; higher: slow links are forgiven"
    )
    transfer_timeout_s: float = knob(
        120.0, "limit for moving one model; higher: slow links are forgiven; lower: dead ones hold up less"
    )
    model_limit_bytes: int = knob(
        20 * 2**30, "room for models; lower: the least recently used ones go sooner"
    )
    artifacts: str = knob(
        "",
        "URL of an object store that keeps models, checkpoints, code and data, as s3://BUCKET/PREFIX or "
        "file:///FOLDER, with its own credentials' variables; the state folder is its cache then. Empty: the "
        "state folder alone",
    )
    event_logs_kept: int = knob(
        10_000, "ended jobs whose events are kept; higher: older ones can be watched again; lower: less disk"
    )
    events_kept: int = knob(
        1_000_000, "newest events kept of a job; higher: long jobs show all steps; lower: less disk"
    )
    evaluate: str = knob(
        "auto",
        "auto: a job succeeds only if the trainer finds the metric that its workers told of, for built-in "
        "tasks whose data it has; the first evaluation costs 2 s of a core and 230 MB for some minutes. "
        "off: the metric is the workers' word",
    )
    evaluation_timeout_s: float = knob(
        300.0, "limit for evaluating one model; higher: large test sets are done; lower: jobs end sooner"
    )
    evaluation_memory_bytes: int = knob(
        4 * 2**30, "memory for evaluating one model; higher: larger models; lower: the machine stays free"
    )
    join: str = knob(
        "",
        "what `peerloom token create --role trainer` printed: with it this service joins, once; what it "
        "gets lies in the state folder. Empty, and nothing there: plain, on loopback only",
    )
    allow_plain: bool = knob(False, "serve without certificates beyond loopback, on a network that you trust")
    metrics: str = knob("", METRICS_HELP)
    log_level: str = knob("info", "debug, info, warning or error")

    def __post_init__(self) -> None:
        if self.evaluate not in EVALUATE:
            raise ConfigurationError(f"evaluate is {self.evaluate!r}, but must be {' or '.join(EVALUATE)}.")
        try:
            check_addresses("registry", self.registry)
            check_range("evaluation_timeout_s", self.evaluation_timeout_s, 1, 86_400)
            check_range("evaluation_memory_bytes", self.evaluation_memory_bytes, 2**28, 2**60)
        except InvalidArgumentError as error:
            raise ConfigurationError(error.message, metadata=error.metadata) from None

    def state_folder(self) -> Path:
        """The state folder, absolute."""
        return Path(self.state).absolute()

    def database_url(self) -> str:
        """Where the database lies."""
        return self.database or f"sqlite:///{self.state}/trainer.sqlite"
