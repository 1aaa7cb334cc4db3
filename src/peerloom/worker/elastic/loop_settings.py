"""What a loop is asked for, within its limits: clipping, half precision, pieces, batches and epochs."""

import math
from dataclasses import dataclass
from typing import Any

from peerloom.errors import InvalidArgumentError
from peerloom.worker.updating.precision import TYPES


@dataclass(frozen=True)
class LoopSettings:
    """As `peerloom.elastic` is given them; `seed` orders the samples, unless a job has its own."""

    clip_norm: float | None = None
    autocast: str | None = None
    micro_batch: int | None = None
    seed: int = 0

    def check(self) -> None:
        """Raises InvalidArgumentError, naming the setting, for one that is outside its limits."""
        if self.clip_norm is not None and not 0 < self.clip_norm < math.inf:
            raise InvalidArgumentError.of_field("clip_norm", self.clip_norm, "a number above 0, or None")
        if self.autocast is not None and self.autocast not in TYPES:
            raise InvalidArgumentError.of_field("autocast", self.autocast, f"None, {' or '.join(TYPES)}")
        if self.micro_batch is not None:
            whole_number("micro_batch", self.micro_batch)


def whole_number(name: str, value: Any) -> int:
    """The value. Raises InvalidArgumentError for one that isn't a whole number from 1."""
    if not isinstance(value, int) or value < 1:
        raise InvalidArgumentError.of_field(name, value, "a whole number from 1")
    return value
