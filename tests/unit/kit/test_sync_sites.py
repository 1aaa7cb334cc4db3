"""Which ranks are at one site and who leads it, by what a job names and by the ranks' nodes."""

import pytest

from peerloom.kit.sync_sites import leaders_of, renamed, shown_sites, sites_of

TWO = (("a", "b"), ("c", "d"))


def test_sites_are_written_as_they_are_read() -> None:
    assert sites_of("a+b/c+d") == TWO
    assert shown_sites(TWO) == "a+b/c+d"
    assert renamed(TWO, {"a": "id-1", "d": "id-2"}) == (("id-1", "b"), ("c", "id-2"))
    assert renamed((("a", "b"), ("id-1",)), {"a": "id-1"}) == (("id-1", "b"),), "one node by both its names"


@pytest.mark.parametrize("text", ["a+", "/a", "a//b", "a+a", "a/b+a", "A", "a b", "-a"])
def test_what_names_no_node_or_one_twice_is_none(text: str) -> None:
    assert sites_of(text) is None


@pytest.mark.parametrize(
    ("nodes", "leaders"),
    [
        ("abcd", (0, 0, 2, 2)),
        ("dcba", (1, 1, 3, 3)),  # the first that the site names leads
        ("bdca", (3, 2, 2, 3)),
        ("bdc", (0, 2, 2)),  # without it the next one does
        ("bbcx", (0, 0, 2, 3)),  # two workers of a node, and a node that no site names
        ("ab", (0, 1)),  # all at one site: none is far
    ],
)
def test_the_first_node_of_a_site_that_is_there_leads_it(nodes: str, leaders: tuple[int, ...]) -> None:
    assert leaders_of(TWO, nodes) == leaders


def test_without_names_a_node_is_a_site() -> None:
    assert leaders_of((), ["a", "b", "a", "c"]) == (0, 1, 0, 3)
    assert leaders_of((), ["a", "b", "c"]) == (0, 1, 2)
    assert leaders_of((), ["a", "a"]) == (0, 1)
