"""What one round came to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Round:
    """One job's end. Work in 1e9 operations, times in seconds.

    `useful_gflops` is the work done a second and a requested slot; `finish_s` is None for a job that wasn't
    finished. Of the nodes asked, `newcomers` had never been asked under their name; `attackers` mean no good.
    """

    number: int
    slots: int
    asked: tuple[int, ...]
    accepted: int
    newcomers: int
    attackers: int
    interruptions: int
    useful_gflops: float
    finish_s: float | None
    work_of: tuple[tuple[int, float], ...]

    @property
    def reached(self) -> bool:
        """At least one node gave compute."""
        return self.accepted > 0
