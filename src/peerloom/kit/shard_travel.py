"""How the units of a model in shards travel along the ring of its workers. Pure."""

UNITS_AHEAD = 2  # whose values are on their way before they are needed
# Whose gradients may wait at a worker to be passed on: with two an owner's last ones hold up the next one's.
MOST_UNSUMMED = 4
_PIECES = 8  # of a unit: as many are on their way at once as there are workers
_LEAST_BYTES, _MOST_BYTES = 1 << 16, 1 << 20


def piece_bytes(unit_bytes: int) -> int:
    """The bytes of each but the last piece that a worker passes on while the rest of a unit still comes.

    An eighth of the unit, in whole times of 64 KiB, from one of them to 16.
    """
    return min(_MOST_BYTES, max(1, unit_bytes // _PIECES // _LEAST_BYTES) * _LEAST_BYTES)
