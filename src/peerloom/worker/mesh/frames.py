"""What stands before each message between two workers, and how one that doesn't fit is told."""

import struct
from typing import NamedTuple

HEADER = struct.Struct("!QBQ")
MAX_MESSAGE_BYTES = 1 << 36
MARK = "worker mesh"  # every failure that comes of the network or of a peer begins so


class Tag(NamedTuple):
    """Which message: exchanges are numbered alike on all ranks, and each has phases, from 0."""

    sequence: int
    phase: int


def header(tag: Tag, length_bytes: int) -> bytes:
    """The bytes before a message of so many bytes."""
    return HEADER.pack(tag.sequence, tag.phase, length_bytes)


def parse_header(content: bytes | bytearray) -> tuple[Tag, int]:
    """A message's tag and its length in bytes. Raises ValueError for one that is longer than any."""
    sequence, phase, length_bytes = HEADER.unpack(content)
    if length_bytes > MAX_MESSAGE_BYTES:
        raise ValueError(f"announced {length_bytes} bytes, and {MAX_MESSAGE_BYTES} are the most")
    return Tag(sequence, phase), length_bytes


def check_length(tag: Tag, length_bytes: int, expected_bytes: int) -> None:
    """Raises ValueError unless a message is as long as the method and the bucket say."""
    if length_bytes != expected_bytes:
        raise ValueError(
            f"sent {length_bytes} bytes in phase {tag.phase} of exchange {tag.sequence}, "
            f"where {expected_bytes} belong"
        )
