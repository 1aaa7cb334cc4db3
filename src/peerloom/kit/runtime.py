"""What a service takes from the world it runs in."""

import random
from dataclasses import dataclass, field

from peerloom.kit.clock import Clock
from peerloom.kit.dialing import Dialer


@dataclass(frozen=True)
class Runtime:
    """What a service reads time from, calls others with and draws from; a simulation hands in its own."""

    clock: Clock
    dialer: Dialer
    chance: random.Random = field(default_factory=random.Random, kw_only=True)
