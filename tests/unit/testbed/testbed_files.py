"""Testbed files for the tests: one that is right, and ways to change it."""

from peerloom.testbed.plan import Plan
from peerloom.testbed.reading import parse_plan

RIGHT = """\
version: 1
name: three
network:
  nodes: 6
  medium: csma
  rate: 10Mbps
  mtu: 1500
hosts:
  - {name: host-1, node: 1, slots: 2}
  - {name: host-2, node: 2}
  - {name: host-3, node: 3, address: 10.77.0.50}
"""


def plan(text: str = RIGHT) -> Plan:
    """The plan of a file named three.yaml."""
    return parse_plan("three.yaml", text)


def changed(old: str, new: str, text: str = RIGHT) -> str:
    """The file with one part put differently."""
    assert old in text
    return text.replace(old, new)
