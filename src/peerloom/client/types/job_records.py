"""What is kept of a job beside its progress: the samples it used, and what its network carried."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LedgerStretch:
    """Consecutive steps of one generation and the samples they used, as positions in the epochs' orders.

    Steps and epochs count from 1 and include both ends; positions count from 0, and `end_sample` is one past
    the last. Many old generations may be put together: `generation` is the first, `last_generation` the last.
    """

    generation: int
    last_generation: int
    workers: int
    first_step: int
    last_step: int
    first_epoch: int
    first_sample: int
    last_epoch: int
    end_sample: int


@dataclass(frozen=True)
class Ledger:
    """Which samples the committed steps used. `is_exact`: each one once; else `verdict` says what is wrong.

    `discarded_samples` were used in steps that were lost with all workers, and were used again.
    """

    is_exact: bool
    verdict: str
    training_samples: int
    discarded_samples: int
    stretches: tuple[LedgerStretch, ...]


@dataclass(frozen=True)
class LinkTraffic:
    """What passed between a node of an emulated network and its host; `host` is empty where none is."""

    host: str
    node: int
    sent_bytes: int
    sent_packets: int
    received_bytes: int
    received_packets: int
    dropped_packets: int


@dataclass(frozen=True)
class NetworkTraffic:
    """What an emulated network carried while a job ran, in `seconds`.

    `lag_worst_s` is how far the emulation was behind the wall clock at its worst, None where nothing can lag;
    beyond `lag_bound_s`, times measured in the job are the emulation's own.
    """

    backend: str
    medium: str
    seconds: float
    lag_worst_s: float | None
    lag_bound_s: float
    links: tuple[LinkTraffic, ...]
