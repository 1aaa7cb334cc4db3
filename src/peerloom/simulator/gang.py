"""A job's gang while it runs: as slow as its slowest, and a member's end costs all of them."""

from dataclasses import dataclass, field

LOSS_S = 30.0  # what the others lose when a member goes: noticing, a new generation, catching up
DEADLINE_FACTOR = 4.0


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job: the `slots` it can use, its length in seconds on as many typical ones, the nodes it may ask."""

    number: int
    slots: int
    length_s: float
    budget: int


@dataclass(slots=True)
class GangMember:
    """One node in a gang: its slots there, and its speed a slot."""

    host: int
    row: int
    slots: int
    gflops: float


@dataclass(slots=True)
class Gang:
    """Progress of one job; work in 1e9 operations, times in simulated seconds.

    `work_of` is the work that each host did; `version` counts changes: an old plan for the end is void.
    `started_s` is when the job was submitted, `joined_s` when its nodes accepted; `held_s` sums up for how
    long each node was held.
    """

    job: JobSpec
    started_s: float
    work_left: float
    members: dict[int, GangMember] = field(default_factory=dict)
    runs_from_s: float = 0.0
    interruptions: int = 0
    done: float = 0.0
    version: int = 0
    work_of: dict[int, float] = field(default_factory=dict)
    joined_s: float = 0.0
    held_s: float = 0.0

    @property
    def gflops(self) -> float:
        """Speed of the whole: the slots times the slowest member's speed."""
        if not self.members:
            return 0.0
        members = self.members.values()
        return min(m.gflops for m in members) * sum(m.slots for m in members)

    @property
    def deadline_s(self) -> float:
        """When it is given up."""
        return self.started_s + DEADLINE_FACTOR * self.job.length_s

    def advance(self, now_s: float) -> None:
        """Counts the work done until now."""
        spent_s = now_s - self.runs_from_s
        if spent_s <= 0 or not self.members:
            return
        done = min(self.work_left, self.gflops * spent_s)
        slots = sum(member.slots for member in self.members.values())
        for member in self.members.values():
            self.work_of[member.host] = self.work_of.get(member.host, 0.0) + done * member.slots / slots
        self.work_left -= done
        self.done += done
        self.runs_from_s = now_s

    def lose(self, host: int, now_s: float) -> GangMember:
        """A member is gone; the others go on after LOSS_S."""
        self.advance(now_s)
        self.interruptions += 1
        self.runs_from_s = max(self.runs_from_s, now_s) + LOSS_S
        self.held_s += now_s - self.joined_s
        return self.members.pop(host)

    def end(self, now_s: float) -> None:
        """Nobody is held any longer."""
        self.advance(now_s)
        self.held_s += (now_s - self.joined_s) * len(self.members)

    def ends_s(self) -> float:
        """When it will be finished or given up if nobody leaves."""
        return min(self.deadline_s, self.runs_from_s + self.work_left / self.gflops)
