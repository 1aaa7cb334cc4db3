"""A testbed as the dashboard shows it."""

from testbed_files import plan

from peerloom.cli.testbed_window import row_of
from peerloom.testbed.backends import NodeCount, Stats


def test_it_has_each_host_s_link_and_the_lag_in_milliseconds() -> None:
    nodes = tuple(NodeCount(number, number != 2, 10, 1, 20, 2, number) for number in range(6))
    row = row_of(plan(), Stats(9.0, 0.001, 0.25, 1.5, nodes))
    assert (row["lag_ms"], row["lag_worst_ms"], row["medium"], row["cpu_s"]) == (1.0, 250.0, "csma", 1.5)
    assert [(host["name"], host["up"]) for host in row["hosts"]] == [
        ("control", True),
        ("host-1", True),
        ("host-2", False),
        ("host-3", True),
    ]
    assert (row["hosts"][1]["rate"], row["hosts"][1]["sent_bytes"]) == ("10 Mbit/s", 10)
