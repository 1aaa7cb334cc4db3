"""What inference answers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy.typing as npt

Mode = Literal["auto", "remote", "split", "local"]
Combination = Literal["mean", "vote"]
OpinionMode = Literal["auto", "off", "background", "wait"]


@dataclass(frozen=True)
class RouteEstimate:
    """What one route would take, in seconds (None: it can't be taken), and why."""

    mode: Mode
    seconds: float | None
    reason: str


@dataclass(frozen=True, eq=False)
class Inference:
    """Outputs, one row for each input, and how they came about.

    `nodes` computed them, in the order of the stages for "split"; empty for "local". `seconds` is the whole,
    `model_s` what the model took, `queue_s` what the request waited at its node. `estimates` is what "auto"
    compared. `hedged`: a second node was asked because the first was late. `replaced` counts stages that were
    lost on the way and replaced. `disagreement`, where several nodes were asked: the mean over samples of
    the largest difference between a node's answer and the combined one, 0 to 1; `deviating` names nodes
    that stood apart from the others. `confirmed_by`, where a second opinion was waited for: who gave the same
    answer, "here" for this machine; empty where nobody was asked, or nobody agreed.

    Where the model carries labels, `labels` is each input's most probable class, `probabilities` [n, classes]
    are those of all (None for a vote), and `classes` names their columns.
    """

    outputs: "npt.NDArray[Any]"
    mode: Mode
    reason: str
    nodes: tuple[str, ...]
    seconds: float
    model_s: float = 0.0
    queue_s: float = 0.0
    estimates: tuple[RouteEstimate, ...] = ()
    hedged: bool = False
    replaced: int = 0
    disagreement: float | None = None
    deviating: tuple[str, ...] = ()
    confirmed_by: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    probabilities: "npt.NDArray[Any] | None" = None
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class GeneratedToken:
    """One token of a generated sequence: its number, its bytes, its place from 0, and seconds since the last.

    `nodes` computed it, in the order of their stages (empty: it was made here), and `replaced` counts the
    stages lost and replaced since the token before.
    """

    token: int
    text: bytes
    position: int
    seconds: float
    nodes: tuple[str, ...] = ()
    replaced: int = 0
