"""What a policy is: a pure function from columns of candidates to a ranked few, with reasons."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from peerloom.services.selector.policies.past import Past


@dataclass(frozen=True)
class Candidates:
    """Nodes that may be chosen, as columns of equal length; position i is the same node in each.

    `past` is all else that is known of them; without it they are newcomers, each of its own owner.
    """

    belief: npt.NDArray[np.float64]
    slots: npt.NDArray[np.int32]
    past: Past | None = None

    def __len__(self) -> int:
        return len(self.belief)

    @cached_property
    def known(self) -> Past:
        """The past, also of newcomers."""
        return self.past or Past.of_newcomers(len(self))


@dataclass(frozen=True)
class SelectionRequest:
    """What is asked for. `budget`: how many nodes may be asked, 1 or more; all candidates meet the rest.

    `slots` (how many the job can use) and `horizon_s` (how long it will run, in seconds) are 0 when unknown.
    """

    budget: int
    min_slots: int = 0
    accelerator_kind: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    excluded: frozenset[str] = frozenset()
    slots: int = 0
    horizon_s: float = 0.0


@dataclass(frozen=True)
class Selection:
    """Positions of the chosen candidates, best first, and a sentence for each that says why.

    `scores`, one a candidate, says how the policy ranked all of them (higher is better, NaN: not at all);
    None for a policy that gives nobody a score.
    """

    indices: npt.NDArray[np.intp]
    reasons: list[str]
    scores: npt.NDArray[np.float64] | None = None


@dataclass(frozen=True)
class ScoreTerm:
    """One term of a node's score: its value in `unit`, and the evidence behind it, a sentence."""

    name: str
    value: float
    unit: str
    evidence: str


class Policy(Protocol):
    """A way to choose. `source` says where the idea is from."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def source(self) -> str: ...

    def select(
        self, candidates: Candidates, request: SelectionRequest, rng: np.random.Generator
    ) -> Selection:
        """At most `request.budget` candidates, each once. All chance comes from `rng`."""

    def explain(self, candidates: Candidates, request: SelectionRequest, index: int) -> list[ScoreTerm]:
        """The terms of the score of the candidate at `index`, in the order they are computed."""
