"""Two homes behind NAT in a testbed: they train together over ns-3 and answer, through a host that relays."""

from pathlib import Path

import pytest
import yaml
from testbed_parts import (
    ask_inside,
    assert_equal,
    captured,
    file_of,
    is_cut_off,
    parameters_seen,
    parameters_without_network,
    reaches,
    require,
    train_inside,
)

from peerloom.testbed import Testbed, parse_plan

pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]
HOSTS = [
    {"name": "open", "node": 1, "slots": 0, "relay": True},
    {"name": "home-1", "node": 2, "nat": True},
    {"name": "home-2", "node": 3, "nat": True},
]
ASKED = """
import json, numpy
from peerloom import Client
samples = numpy.random.default_rng(1).integers(0, 17, (4, 1, 8, 8), "uint8")
with Client() as client:
    nodes = {node.name: [node.via or "", node.address.rpartition(":")[0]] for node in client.nodes()}
    ways = ("local", "remote", "split")
    answers = [client.infer("%s", samples, mode=mode).outputs.tolist() for mode in ways]
print(json.dumps({"nodes": nodes, "answers": answers}))
"""


def test_two_homes_train_together_and_answer_through_a_relay(tmp_path: Path) -> None:
    """With the same parameters as without a network, of which the wire shows none: the relay sees no more."""
    require()
    plan = parse_plan("homes.yaml", yaml.safe_dump({**yaml.safe_load(file_of(3)), "hosts": HOSTS}))
    with Testbed(plan, tmp_path / "testbed") as testbed:
        assert is_cut_off(testbed, "open", "home-1"), "nobody reaches a home"
        assert reaches(testbed, "home-1", "open"), "a home reaches others"
        with captured(testbed) as capture:
            job, parameters = train_inside(testbed, requests=2)
        told = ask_inside(testbed, ASKED % job)
        sent = {link.host: link.sent_bytes for link in testbed.traffic().links}
    assert told["nodes"] == {
        "open": ["", "10.77.0.11"],
        "home-1": ["open", "10.77.0.11"],
        "home-2": ["open", "10.77.0.11"],
    }
    local, *others = told["answers"]
    for answer in others:
        assert answer == [pytest.approx(row, abs=1e-4) for row in local]
    gradients = 45 * sum(one.numel() * one.element_size() for one in parameters.values())
    assert sent["open"] > 2 * gradients, "of 45 steps both homes' went through the relay"
    assert parameters_seen(parameters, capture.seen) == []
    assert_equal(parameters, parameters_without_network(tmp_path, workers=2))
