"""Where a bucket's values go: every value once, servers alike loaded, and the same in each step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.kit.sync_grammar import parse_sync
from peerloom.worker.sync.bucket_pieces import BucketOwners, BucketPiece

LENGTHS = st.lists(st.integers(1, 5000), min_size=1, max_size=12)
METHODS = [
    *("topology=direct", "topology=ps", "topology=ps:2", "schedule=cut:4096", "bytescheduler-ps"),
    *("topology=ps:node-1", "schedule=cut:4096,topology=ps:node-0+node-1"),
]


def owners_of(text: str, ranks: int) -> BucketOwners:
    return BucketOwners(parse_sync("sync", text), [f"node-{rank}" for rank in range(ranks)])


def placed(text: str, ranks: int, lengths: list[int]) -> list[list[BucketPiece]]:
    placement = owners_of(text, ranks)
    placement.begin_step()
    return [placement.pieces(length, 4) for length in lengths]


def test_with_direct_all_own_a_part_of_each_bucket() -> None:
    assert placed("topology=direct", 3, [10, 4]) == [
        [BucketPiece(0, 10, (0, 1, 2))],
        [BucketPiece(0, 4, (0, 1, 2))],
    ]


def test_a_server_with_the_fewest_bytes_gets_the_next_bucket() -> None:
    """10 go to rank 0, 4 and 5 to rank 1, then that has 9 and gets the next one too."""
    found = placed("topology=ps:2", 3, [10, 4, 5, 7])
    assert [pieces[0].owners for pieces in found] == [(0,), (1,), (1,), (1,)]
    assert owners_of("topology=ps:9", 3).servers == (0, 1, 2), "there are no more ranks"


def test_of_a_large_bucket_each_server_owns_a_part() -> None:
    """65,536 values of 4 bytes are 256 KiB; whose turn it is with small ones doesn't change by it."""
    found = placed("topology=ps:2", 3, [10, 65_536, 65_535, 4])
    assert [pieces[0].owners for pieces in found] == [(0,), (0, 1), (1,), (0,)]


def test_servers_on_named_nodes_own_all_and_take_turns() -> None:
    """Rank 1 gets 10, rank 3 4 and 5, then rank 3 has 9 and gets the next one too."""
    found = placed("topology=ps:node-3+node-1", 4, [10, 4, 5, 7])
    assert [pieces[0].owners for pieces in found] == [(1,), (3,), (3,), (3,)]


@pytest.mark.parametrize(
    ("nodes", "servers"),
    [
        ("abcd", (0, 2)),
        ("dcba", (1, 3)),
        ("aabc", (0, 1, 3)),
        ("bdc", (2,)),
        ("aac", (0, 1, 2)),
        ("bd", (0, 1)),
    ],
)
def test_parts_are_with_those_of_the_named_nodes_that_are_there_or_with_all(
    nodes: str, servers: tuple[int, ...]
) -> None:
    """Nodes a and c are named, the workers' nodes are told by rank."""
    assert BucketOwners(parse_sync("sync", "topology=ps:a+c"), nodes).servers == servers


def test_a_cut_leaves_pieces_of_at_most_so_many_bytes() -> None:
    """4,096 bytes are 1,024 values of 4; the pieces of a server go round as well."""
    [pieces] = placed("schedule=cut:4096,topology=ps", 2, [2500])
    assert pieces == [
        BucketPiece(0, 1024, (0,)),
        BucketPiece(1024, 2048, (1,)),
        BucketPiece(2048, 2500, (0,)),
    ]


@given(st.sampled_from(METHODS), st.integers(2, 6), LENGTHS)
def test_every_value_is_in_one_piece_and_steps_are_alike(text: str, ranks: int, lengths: list[int]) -> None:
    placement = owners_of(text, ranks)
    steps = []
    for _ in range(2):
        placement.begin_step()
        steps.append([placement.pieces(length, 4) for length in lengths])
    assert steps[0] == steps[1]
    for length, pieces in zip(lengths, steps[0], strict=True):
        assert [piece.start for piece in pieces] == [0, *(piece.end for piece in pieces[:-1])]
        assert pieces[-1].end == length
        assert all(set(piece.owners) <= set(range(ranks)) for piece in pieces)
