"""What the registry can be told, and what each choice costs."""

import re
from dataclasses import dataclass

from peerloom.errors import ConfigurationError, nearest
from peerloom.kit.config import knob
from peerloom.kit.metrics import METRICS_HELP
from peerloom.services.registry.membership.decisions import Timing
from peerloom.services.registry.membership.node_retention import RetentionLimits

MAX_RETENTION_DAYS = 36_500.0
MAX_CERTIFICATE_HOURS = 8_760.0
_SYSTEM = re.compile(r"[a-z0-9]([a-z0-9._/-]{0,125}[a-z0-9])?")
PRESETS = {
    "local": Timing(1.0, 4.0, 10.0, 5.0),
    "lan": Timing(1.0, 5.0, 15.0, 10.0),
    "wan": Timing(5.0, 20.0, 60.0, 30.0),
}


@dataclass(frozen=True)
class RegistryConfig:
    """Knows which nodes exist and which of them live."""

    listen: str = knob("127.0.0.1:7400", "host:port; port 0 takes a free one")
    state: str = knob(".peerloom", "folder for the database")
    database: str = knob("", "SQLAlchemy URL; empty: registry.sqlite in the state folder")
    system: str = knob(
        "",
        "name of the system that the database belongs to, e.g. lab-a; with another one than whoever was here "
        "first this registry refuses to start. Empty: a database without a name",
    )
    preset: str = knob(
        "local",
        "local, lan or wan: how patient to be; a slower network needs a later one of these, "
        "and then the dead are found later",
    )
    heartbeat_interval_s: float | None = knob(
        None,
        "how often a node beats, None: the preset's; raising saves work and finds late nodes later, "
        "lowering costs the registry a message a node each time",
    )
    suspect_after_s: float | None = knob(
        None,
        "silence until a node is suspected, None: the preset's; raising finds trouble later, "
        "lowering suspects nodes that are merely slow",
    )
    dead_after_s: float | None = knob(
        None,
        "silence until a session is closed as an interruption, None: the preset's; raising keeps "
        "dead nodes listed longer, lowering leaves a slow node less time to refute",
    )
    restart_grace_s: float | None = knob(
        None,
        "how long after its start the registry counts nobody's silence, None: the preset's; raising "
        "finds the dead later after a restart, lowering suspects nodes that have not yet found it again",
    )
    service_lease_s: float = knob(
        15.0,
        "how long an announced service is listed; raising lists dead services longer, lowering makes "
        "the services announce more often",
    )
    node_limit: int = knob(
        100_000,
        "nodes it knows at most; a newcomer takes the place of the node that is gone for longest, and is "
        "refused when none is gone; raising costs up to 10 kB of memory a node, lowering forgets sooner",
    )
    retention_days: float = knob(
        30.0,
        "days after which a node that is gone is forgotten, and sessions are; raising keeps beliefs of nodes "
        "that come back late, lowering saves room",
    )
    event_limit: int = knob(
        20_000,
        "newest events that are kept in any case, so that those who watch may go on where they were; raising "
        "costs about 1 kB of disk an event, lowering makes late ones start anew",
    )
    join_listen: str = knob(
        "",
        "host:port where those who have a token join; empty: no door, everybody who reaches the registry is "
        "let in, and it serves on loopback only. Port 0 takes a free one",
    )
    certificate_hours: float = knob(
        24.0,
        "life of a certificate, renewed at two thirds of it; raising lets who was away return for longer "
        "without joining again, lowering turns out sooner who can't be told that it was revoked",
    )
    allow_plain: bool = knob(
        False, "serve without certificates beyond loopback; everybody on that network is then trusted"
    )
    metrics: str = knob("", METRICS_HELP)
    log_level: str = knob("info", "debug, info, warning or error")

    def database_url(self) -> str:
        """Where the database lies."""
        return self.database or f"sqlite:///{self.state}/registry.sqlite"

    def check(self) -> None:
        """Raises ConfigurationError for anything that can't be used, before anything starts."""
        self.timing()
        self.retention()
        if self.system and not _SYSTEM.fullmatch(self.system):
            raise ConfigurationError(
                f"system is {self.system[:80]!r}, but must be at most 127 characters of a-z, 0-9, '.', '_', "
                "'-' and '/', and begin and end with a letter or digit, as in lab-a."
            )
        if not 0 < self.certificate_hours <= MAX_CERTIFICATE_HOURS:
            raise ConfigurationError(
                f"certificate_hours is {self.certificate_hours:g}, but must be above 0, and at most "
                f"{MAX_CERTIFICATE_HOURS:,.0f}."
            )

    def retention(self) -> RetentionLimits:
        """What is remembered. Raises ConfigurationError for what is no limit."""
        if self.node_limit < 1 or self.event_limit < 1:
            raise ConfigurationError(
                f"node_limit ({self.node_limit}) and event_limit ({self.event_limit}) must be 1 or more."
            )
        if not 0 < self.retention_days <= MAX_RETENTION_DAYS:
            raise ConfigurationError(
                f"retention_days is {self.retention_days:g}, but must be above 0, and at most "
                f"{MAX_RETENTION_DAYS:,.0f}."
            )
        return RetentionLimits(self.node_limit, self.retention_days, self.event_limit)

    def timing(self) -> Timing:
        """The preset with the explicit knobs put over it. Raises ConfigurationError for a wrong order."""
        if self.preset not in PRESETS:
            near = nearest(self.preset, PRESETS) or sorted(PRESETS)
            raise ConfigurationError(f"preset is {self.preset!r}. Did you mean {' or '.join(near)}?")
        preset = PRESETS[self.preset]
        timing = Timing(
            _or(self.heartbeat_interval_s, preset.heartbeat_interval_s),
            _or(self.suspect_after_s, preset.suspect_after_s),
            _or(self.dead_after_s, preset.dead_after_s),
            _or(self.restart_grace_s, preset.restart_grace_s),
        )
        _check(timing)
        return timing


def _or(given: float | None, preset: float) -> float:
    return preset if given is None else given


def _check(timing: Timing) -> None:
    if not 0 < timing.heartbeat_interval_s < timing.suspect_after_s < timing.dead_after_s < float("inf"):
        raise ConfigurationError(
            f"heartbeat_interval_s ({timing.heartbeat_interval_s:g}), "
            f"suspect_after_s ({timing.suspect_after_s:g}) and dead_after_s ({timing.dead_after_s:g}) "
            "must be above 0 and grow in this order: a node must miss a beat "
            "to be suspected, and have time to refute before it is declared dead."
        )
    if not 0 <= timing.restart_grace_s < float("inf"):
        raise ConfigurationError(f"restart_grace_s is {timing.restart_grace_s:g}, but must be 0 or more.")
