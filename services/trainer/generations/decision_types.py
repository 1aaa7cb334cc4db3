"""What can be decided of a job's generations, each with its reason."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Wait:
    """Nothing to do before the next change, or before `until_s` (monotonic)."""

    reason: str
    until_s: float | None = None


@dataclass(frozen=True)
class Hold:
    """The job waits for nodes: too few workers are left, but the state is safe with them."""

    reason: str
    until_s: float | None = None


@dataclass(frozen=True)
class Silence:
    """These workers show no sign of life: go on without them, until they speak again."""

    worker_ids: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class GiveUpOn:
    """These workers stayed away for too long: count them as lost."""

    worker_ids: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Abort:
    """Tell these workers to leave the generation: at once, or politely at the next step boundary."""

    worker_ids: tuple[str, ...]
    reason: str
    is_polite: bool = False


@dataclass(frozen=True)
class Dismiss:
    """Let these workers go: their nodes asked for it, and nobody works with them now."""

    worker_ids: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Save:
    """This worker alone has the state and has to go: it shall store that first."""

    worker_id: str
    reason: str


@dataclass(frozen=True)
class Form:
    """Form the next generation from these workers, ranked in this order.

    Of them `newcomers`, the last ones, lack the state that counts. `beside`: they meet beside the training of
    the current one. `sync` takes the place of the method in use, if any. `state_sources` are those of `GoOn`.
    `stage_shares` and `stage_rooms` are those of a `StageDivision`.
    """

    worker_ids: tuple[str, ...]
    first_step: int
    newcomers: int
    reason: str
    from_checkpoint: bool = False
    beside: bool = False
    sync: str = ""
    stage_shares: tuple[int, ...] = ()
    stage_rooms: tuple[int, ...] = ()
    state_sources: tuple[int, ...] = ()


@dataclass(frozen=True)
class Enter:
    """All of the generation that met beside the training are connected: they enter it at a step boundary."""

    reason: str


@dataclass(frozen=True)
class Complete:
    """All have finished; the model is with `worker_id`."""

    worker_id: str
    reason: str


@dataclass(frozen=True)
class Fail:
    """Nobody is left who has the state."""

    reason: str


Decision = Wait | Hold | Silence | GiveUpOn | Abort | Dismiss | Save | Form | Enter | Complete | Fail
