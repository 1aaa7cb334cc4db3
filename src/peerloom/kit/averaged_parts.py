"""Which values all ranks average within a round of local steps: a part of them each time. Pure functions.

To average parts often, rather than all seldom, keeps the ranks nearer to each other for the same bytes
(partial averaging: Lee et al., arXiv 2201.03789).
"""

from dataclasses import dataclass

from peerloom.errors import InvalidArgumentError
from peerloom.kit.occasions import occasion_after, occasions_in
from peerloom.kit.whole_numbers import as_whole

PARTIAL = "partial"
PARTIAL_CHOICES = {
    "F:E": "within a round, after each E batches, all average one value of F, others each time",
    "F:E:L": "the same, and a mean comes into use L batches later, which are computed meanwhile",
}
CHUNK_VALUES = 128  # that stay together: a block of 2bit, whose neighbours fit its scale best
LEAST_PARTS, MOST_PARTS = 2, 1000


@dataclass(frozen=True)
class AveragedParts:
    """One of `parts` (2 to 1,000) of the values is averaged after each `every` batches (1 on).

    Their mean comes into use `late` batches later (0 to `every`), or with the round's end.
    """

    parts: int
    every: int
    late: int = 0

    def __str__(self) -> str:
        return f"{PARTIAL}={self.parts}:{self.every}" + (f":{self.late}" if self.late else "")

    def part_after(self, step: int, steps: range, period: int) -> int | None:
        """Which part is averaged after the job's `step` in the round of its `steps`; None: none is.

        The last step is followed by the exchange of all.
        """
        occasion = occasion_after(self.every, step, steps, period)
        return None if occasion is None else occasion % self.parts

    def occasions(self, period: int) -> int:
        """How many there are in a round of `period` batches."""
        return occasions_in(self.every, period)


def partial_of(field: str, text: str, given: str, period: int) -> AveragedParts:
    """What is `given` as partial averages in a `text` whose rounds have `period` batches.

    Raises InvalidArgumentError with the limit that was passed.
    """
    numbers = [as_whole(each) for each in given.split(":")]
    parts, every, late = [*numbers, 0, 0][:3]
    if len(numbers) not in (2, 3) or not LEAST_PARTS <= parts <= MOST_PARTS:
        limit = f"{PARTIAL}=F:E with {LEAST_PARTS} to {MOST_PARTS:,} parts, as in {PARTIAL}=8:1"
        raise InvalidArgumentError.of_field(field, text, limit)
    if not 1 <= every < period:
        limit = (
            f"{PARTIAL}={parts}:E with an E of at least 1 and below the period ({period}), as after that all"
        )
        raise InvalidArgumentError.of_field(field, text, f"{limit} exchange")
    if not 0 <= late <= every:
        limit = f"{PARTIAL}={parts}:{every}:L with an L of at most {every}, as one part travels at a time"
        raise InvalidArgumentError.of_field(field, text, limit)
    return AveragedParts(parts, every, late)
