"""Which name a request is by, however its Host is written."""

import pytest

from peerloom.dashboard.own_names import host_of


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("127.0.0.1:8080", "127.0.0.1"),
        ("LAB.example.org", "lab.example.org"),
        ("[::1]:8080", "::1"),
        ("[::1", ""),
        ("", ""),
    ],
)
def test_a_host_header_names_who_was_asked(header: str, name: str) -> None:
    assert host_of(header) == name
