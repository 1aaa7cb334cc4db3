"""What one round came to."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

FOUND_OUT_AFTER = 20  # failures of a node that has turned bad: whoever still asks it hasn't noticed


@dataclass(frozen=True, slots=True)
class Round:
    """One job's end. Work in 1e9 operations, times in seconds.

    `useful_gflops` is the work of the job a second and a requested slot, from its submission to its end; 0
    for a job that wasn't finished, whatever was done for it. `bound_gflops` is what no choice could exceed
    (bound.py). `finish_s` is None for a job that wasn't finished. `held_s` sums up for how long each node was
    held. Of the nodes asked, `newcomers` had never been asked under their name; `attackers` mean no good;
    `turned` had turned bad, and `found_out` of them had failed FOUND_OUT_AFTER times since.
    """

    number: int
    slots: int
    asked: tuple[int, ...] = ()
    accepted: int = 0
    newcomers: int = 0
    attackers: int = 0
    turned: int = 0
    found_out: int = 0
    interruptions: int = 0
    useful_gflops: float = 0.0
    bound_gflops: float = 0.0
    finish_s: float | None = None
    held_s: float = 0.0
    work_of: tuple[tuple[int, float], ...] = ()

    @property
    def reached(self) -> bool:
        """At least one node gave compute."""
        return self.accepted > 0

    def after(
        self, asked: Sequence[int], accepted: int, newcomers: int, attackers: int, turned: Sequence[int]
    ) -> "Round":
        """The same after these hosts were asked; `turned` are the failures of those that had turned bad."""
        return replace(
            self,
            asked=(*self.asked, *asked),
            accepted=accepted,
            newcomers=self.newcomers + newcomers,
            attackers=self.attackers + attackers,
            turned=self.turned + len(turned),
            found_out=self.found_out + sum(failures >= FOUND_OUT_AFTER for failures in turned),
        )
