"""Networks by name, such as csma-100M or wan-100M-5ms: the plan of each, and what a model predicts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from peerloom.errors import InvalidArgumentError
from peerloom.experiments.emulation import Device
from peerloom.kit.sync_method import SyncMethod
from peerloom.kit.sync_model.access_links import SyncNetwork
from peerloom.kit.sync_model.layer_times import layers_of_work
from peerloom.kit.sync_model.prediction import predict
from peerloom.kit.sync_model.scheme import scheme_of
from peerloom.kit.sync_model.sync_setting import SyncSetting
from peerloom.testbed import Plan, parse_plan
from peerloom.testbed.bounds import warnings_of
from peerloom.testbed.quantities import bits_per_s, seconds
from peerloom.worker.tasks.layer_shapes import SHAPES

# Above a LAN's usual 1,500: a frame costs ns-3 the same at any length, so it carries five times as much.
MTU_BYTES = 9000
# An idle round trip through ns-3 in real time takes 0.4 to 0.5 ms, whatever the medium's own delay.
EMULATOR_DELAY_S = 0.25e-3
_LAN_DELAY = "1us"
_NAME = re.compile(r"(csma|wan)-(\d{1,4})([kMG])(?:-(\d{1,4}(?:us|ms)))?")


@dataclass(frozen=True)
class EmulatedNetwork:
    """A medium of ns-3: `csma` is a LAN whose `rate` all share, `wan` a link of it and `delay` a host."""

    name: str
    medium: str
    rate: str
    delay: str

    def plan(self, slots: Sequence[int], nodes: int) -> Plan:
        """A testbed of hosts node-1, node-2, ... with so many slots among `nodes` nodes, which are more."""
        content: dict[str, Any] = {
            "version": 1,
            "name": "figures",
            "backend": "ns3",
            "door": False,  # as in one machine beside it, where nothing is encrypted
            "network": {
                "nodes": nodes,
                "medium": self.medium,
                "rate": self.rate,
                "delay": self.delay,
                "mtu": MTU_BYTES,
            },
            "control": {"node": 0},
            "hosts": [
                {"name": f"node-{number}", "node": number, "slots": count}
                for number, count in enumerate(slots, 1)
            ],
            "settings": {
                "registry": {"preset": "lan"},
                "trainer": {"checkpoint_interval_s": 3600},
                # Workers start at once, and an idle node doesn't measure itself while others train.
                "node": {"keep_warm": True, "measure_interval_s": 0, "inference": False},
            },
        }
        return parse_plan(f"{self.name}.yaml", yaml.safe_dump(content, sort_keys=False))

    def check(self, slots: Sequence[int], nodes: int) -> None:
        """Raises InvalidArgumentError for more than ns-3 was measured to carry in real time."""
        said = warnings_of(self.plan(slots, nodes))
        if said:
            raise InvalidArgumentError(
                f"Over {self.name} the emulator would be measured, not the network: {said[0]} "
                "Ask for a lower rate; a larger --slowdown keeps its proportion to computing."
            )

    def predicted_step_s(self, workload: str, device: Device, samples: float, workers: int) -> float:
        """A step of so many workers, a node each, by the model of `peerloom sync`; plain DDP, gloo's ring.

        On csma all send at once in each round of a ring, so each has an equal part of the rate.
        """
        rate = bits_per_s(self.rate) / (workers if self.medium == "csma" else 1)
        # A frame passes two access links.
        delay_s = seconds(self.delay) * (1 if self.medium == "csma" else 2) + EMULATOR_DELAY_S
        shapes = SHAPES[workload]
        layers = layers_of_work(
            "layer",
            [one.parameters for one in shapes],
            [one.operations for one in shapes],
            device.compute_s(workload, samples),
        )
        setting = SyncSetting(SyncNetwork.uniform(workers, rate, delay_s), layers)
        return predict(scheme_of(SyncMethod()), setting).step_s


def network_of(name: str) -> EmulatedNetwork:
    """The network of this name. Raises InvalidArgumentError for another form, or a LAN with a delay."""
    found = _NAME.fullmatch(name)
    if found is None or not int(found[2]):
        limit = "of the form csma-100M or wan-100M-5ms"
        raise InvalidArgumentError.of_field("a network", name[:40], limit)
    medium, rate, unit, delay = found.groups()
    if medium == "csma" and delay:
        raise InvalidArgumentError(
            f"The network {name} is a LAN, which stays busy for as long as a frame is under way: "
            f"leave the delay out, or ask for wan-{rate}{unit}-{delay}."
        )
    return EmulatedNetwork(name, medium, f"{rate}{unit}bps", delay or _LAN_DELAY)
