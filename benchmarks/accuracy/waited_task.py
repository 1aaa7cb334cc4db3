"""Real tasks whose samples take as long as on a device of a host's speed: the parameters and gradients are
real, and what a device would take for both passes is waited for beside them, as two cores can't compute for
four hosts at once."""

import socket
from functools import cached_property

from torch import Tensor

from peerloom.worker.task import Task
from peerloom.worker.tasks.mnist import Mnist
from peerloom.worker.tasks.punctual_waits import PunctualWaits
from peerloom.worker.tasks.text import Text


class Waited(Task):
    """A training sample takes so many milliseconds beside its own on the host that `sample_ms` names.

    `sample_ms` is "ADDRESS=MS,ADDRESS=MS…", with each host's address. Test samples take none.
    """

    def __init__(self, sample_ms: str, **arguments: str) -> None:
        super().__init__(**arguments)
        self._sample_ms = dict(pair.split("=") for pair in sample_ms.split(","))
        self._waits = PunctualWaits()

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The task's own; only training asks for it."""
        self._waits.wait(self._sample_s * len(targets))
        return super().loss(outputs, targets)

    @cached_property
    def _sample_s(self) -> float:
        return next(float(ms) / 1000 for address, ms in self._sample_ms.items() if _is_own(address))


class WaitedMnist(Waited, Mnist):
    """MNIST's digits."""


class WaitedText(Waited, Text):
    """A text's next bytes."""


def _is_own(address: str) -> bool:
    """Whether it is one of this host's: nobody else can listen there."""
    with socket.socket() as listening:
        try:
            listening.bind((address, 0))
        except OSError:
            return False
    return True
