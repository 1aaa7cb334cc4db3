"""A coin that the ranks of a group throw together in each step, and that none of them foresees or chooses.

Each rank reveals a secret of the step, to which it was bound by a digest in the step before; the coin is the
digest of all secrets. A rank reveals its own when it has what all others contribute to the step, so as long
as one that follows the protocol has not heard from another, nobody knows the coin. A rank that reveals
something else than it was bound to is heard by all as such, so the others throw 0: the most that it can
bring about is that the coin comes out for an audit.
"""

import hashlib
import secrets
from collections.abc import Callable

import torch

from peerloom.kit.logs import get_logger

SECRET_BYTES, DIGEST_BYTES = 32, 32
ALWAYS = bytes(DIGEST_BYTES)  # the coin when a rank broke its word: below every rate

_log = get_logger()


class CommonCoin:
    """One generation's coin, as `rank` of `ranks` throws it; `secret` gives new ones (by hand in tests)."""

    def __init__(
        self,
        generation: int,
        rank: int,
        ranks: int,
        secret: Callable[[], bytes] = lambda: secrets.token_bytes(SECRET_BYTES),
    ) -> None:
        self._generation = generation
        self._rank = rank
        self._secret_of = secret
        self._secret = self._next = secret()
        self._bound = [b""] * ranks  # the digests that were said in the step before

    def say(self) -> torch.Tensor:
        """What this rank tells all others in the step: its secret, and the digest of the next; uint8 [64]."""
        self._secret, self._next = self._next, self._secret_of()
        return torch.frombuffer(
            bytearray(self._secret + self._digest(self._rank, self._next)), dtype=torch.uint8
        )

    def throw(self, said: torch.Tensor) -> bytes | None:
        """The coin, 32 bytes, of what all ranks said, uint8 [n, 64]; None in the first step.

        Zeros when a rank said another secret than the one that it was bound to.
        """
        rows = [bytes(row.tolist()) for row in said]
        revealed = [row[:SECRET_BYTES] for row in rows]
        bound, self._bound = self._bound, [row[SECRET_BYTES:] for row in rows]
        if not all(bound):
            return None
        broken = [rank for rank, secret in enumerate(revealed) if self._digest(rank, secret) != bound[rank]]
        if broken:
            _log.warning("coin_broken", ranks=broken)
            return ALWAYS
        return hashlib.blake2b(b"".join(revealed), digest_size=DIGEST_BYTES).digest()

    def _digest(self, rank: int, secret: bytes) -> bytes:
        # With the rank in it nobody can give another's word for its own.
        said = f"{self._generation}/{rank}/".encode() + secret
        return hashlib.blake2b(said, digest_size=DIGEST_BYTES).digest()
