"""Times, sizes and numbers as they are shown: three digits that count, and no exponents."""

import pytest

from peerloom.kit.quantity_texts import doing, plural, shown_bytes, shown_number, shown_s


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.00012, "0.12 ms"), (0.9994, "999 ms"), (0.9996, "1 s"), (1.046, "1.05 s"), (1234, "1,230 s")],
)
def test_seconds(seconds: float, text: str) -> None:
    assert shown_s(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_500, "1.5 kB"),
        (999_400, "999 kB"),
        (999_950, "1 MB"),
        (12_345_678, "12.3 MB"),
        (2.5e12, "2.5 TB"),
        (2e15, "2,000 TB"),
    ],
)
def test_bytes(count: float, text: str) -> None:
    assert shown_bytes(count) == text


@pytest.mark.parametrize(
    ("value", "text"), [(7.166, "7.17"), (999.4, "999"), (999.6, "1,000"), (12_240, "12,200")]
)
def test_numbers(value: float, text: str) -> None:
    assert shown_number(value) == text


def test_counts() -> None:
    assert [plural(count, "node") for count in (0, 1, 2, 1000)] == [
        "0 nodes",
        "1 node",
        "2 nodes",
        "1,000 nodes",
    ]


def test_what_one_or_more_do() -> None:
    assert doing(1, "worker", "go on from step 3") == "1 worker goes on from step 3"
    assert doing(2, "worker", "go on from step 3") == "2 workers go on from step 3"
    assert doing(1, "worker", "begin") == "1 worker begins"
