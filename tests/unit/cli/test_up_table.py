"""What `peerloom up` says once all is up."""

from pathlib import Path

import pytest

from peerloom.cli.commands.up import show_system

ADDRESSES = {"registry": "127.0.0.1:1", "node-1": "127.0.0.1:2"}


def test_where_metrics_are_is_told_beside_each_process(capsys: pytest.CaptureFixture[str]) -> None:
    show_system(
        "127.0.0.1:1", ADDRESSES, {"registry": "127.0.0.1:3", "node-1": "127.0.0.1:4"}, (2,), Path("/x")
    )
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[:3] == [
        ["NAME", "ADDRESS", "SLOTS", "METRICS"],
        ["registry", "127.0.0.1:1", "127.0.0.1:3"],
        ["node-1", "127.0.0.1:2", "2", "127.0.0.1:4"],
    ]


def test_without_metrics_there_is_no_word_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    show_system("127.0.0.1:1", ADDRESSES, {}, (2,), Path("/x"))
    assert "METRICS" not in capsys.readouterr().out
