"""What communication costs: bytes, and the seconds that computing did not hide."""

from dataclasses import dataclass


@dataclass
class Traffic:
    """Sums over the steps since the start."""

    bytes: int = 0
    exposed_s: float = 0.0
