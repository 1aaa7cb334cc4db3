"""The plan model's table of the digits' network is that of the network itself."""

from torch import nn

from peerloom.kit.plan_model.known_models import known_model
from peerloom.worker.tasks.digits import Digits


def test_the_layers_of_digits_are_those_of_its_task() -> None:
    module = Digits().model()
    found = [
        sum(one.numel() for one in child.parameters())
        for child in module.children()
        if isinstance(child, nn.Conv2d | nn.Linear)
    ]
    assert [one.parameters for one in known_model("digits", 1e9)] == found
