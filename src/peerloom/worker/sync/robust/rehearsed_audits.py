"""The audits of a rehearsed training: by the rules that workers and trainer use, without what lies between.

Hostile owners know the rules: they are honest in a generation's first step, in which each looks at its
neighbour; they accuse every honest owner that they audit, and never one another.
"""

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import torch

from peerloom.kit.audit_rules import (
    ORDERED_STEPS,
    TOLERANCE,
    Charge,
    audit_cost,
    audit_rate,
    first_targets,
    is_audited,
    judge,
    partner,
    targets,
)
from peerloom.worker.sync.robust.recomputing import difference, norm_of


@dataclass
class RehearsedAudits:
    """Audits among so many owners, each with one worker; `hostile` are some of them. Steps count from 1."""

    workers: int
    hostile: Collection[int]
    chance: random.Random
    step: int = 0
    audited_steps: int = 0
    accused: dict[int, int] = field(
        default_factory=dict
    )  # by an honest owner: owner, and in which step first
    dismissed: dict[int, int] = field(default_factory=dict)
    is_first: bool = True  # the generation's first step
    _known: list[Charge] = field(default_factory=list)
    _ordered: dict[int, int] = field(default_factory=dict)
    _largest: dict[int, float] = field(default_factory=dict)

    def liars(self) -> list[int]:
        """Those who lie in the step that comes."""
        return [] if self.is_first else [rank for rank in self.hostile if rank not in self.dismissed]

    def after_step(self, said: torch.Tensor, counts: list[int], honest: Callable[[], torch.Tensor]) -> None:
        """Audits a step in which the owners sent the rows of `said`; `honest()` are those of their work."""
        self.step += 1
        coin = self._throw(counts)
        drawn = [(rank, self._draw(rank, counts, coin)) for rank, count in enumerate(counts) if count]
        pairs = [(rank, other) for rank, others in drawn for other in others if other != rank]
        self._ordered = {rank: left - 1 for rank, left in self._ordered.items() if left > 1}
        self.is_first = False
        self.audited_steps += bool(pairs)
        computed = honest() if pairs else said
        for rank, other in pairs:
            if self._accuses(rank, other, said, computed):
                self._charge(rank, other, counts)

    def _throw(self, counts: list[int]) -> bytes | None:
        """The coin of a step that all audit; nobody leaves and comes back, so all have made all steps."""
        coin = self.chance.randbytes(32)
        cost = audit_cost(self._owners(), tuple(counts))
        return coin if is_audited(coin, audit_rate(self.step - 1, cost)) else None

    def _owners(self) -> tuple[str, ...]:
        return tuple(str(one) for one in range(self.workers))

    def _draw(self, rank: int, counts: list[int], coin: bytes | None) -> list[int]:
        owners = self._owners()
        if self.is_first:
            return first_targets(rank, owners, counts)
        others = targets(rank, owners, counts)
        drawn = [other for other in others if other in self._ordered]
        if coin is not None:
            drawn += partner(rank, owners, counts, coin)
        return list(dict.fromkeys(drawn))

    def _accuses(self, rank: int, other: int, said: torch.Tensor, computed: torch.Tensor) -> bool:
        if rank in self.hostile:
            return other not in self.hostile
        parts = [one[other].tensor_split(self.workers)[rank] for one in (said, computed)]
        self._largest[rank] = max(self._largest.get(rank, 0.0), norm_of(parts[1:]))
        return difference(parts[:1], parts[1:], self._largest[rank]) > TOLERANCE

    def _charge(self, rank: int, other: int, counts: list[int]) -> None:
        if rank not in self.hostile:
            self.accused.setdefault(other, self.step)
        if other in self.dismissed or rank in self.dismissed:
            return
        charge = Charge(str(rank), str(other), str(other))
        owners = {str(one) for one, count in enumerate(counts) if count and one not in self.dismissed}
        found = judge(self._known, charge, owners)
        if not found.is_new:
            return
        self._known.append(charge)
        if found.dismisses:
            self.dismissed[other] = self.step
            self.is_first = True  # the others go on in a generation of their own
        else:
            self._ordered[other] = ORDERED_STEPS
