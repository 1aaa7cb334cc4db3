"""What a client takes from the world around it; who tests code without a network hands in another one."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from peerloom.client.address import Address, find_address
from peerloom.client.loop_thread import LoopThread
from peerloom.kit.clock import Clock, SystemClock
from peerloom.kit.dialing import Dialer
from peerloom.kit.identity import Identity
from peerloom.kit.tracing_setup import start_client_tracing

if TYPE_CHECKING:
    from peerloom.inference.client.local_model import LocalMachine


def own_machine(clock: Clock) -> "LocalMachine":
    """What runs models in this process."""
    from peerloom.inference.client.local_model import OwnMachine  # here, because it brings numpy

    return OwnMachine(clock)


@dataclass(frozen=True)
class TransportSeam:
    """How channels open, what time it is, and where the coroutines of a client without async run.

    `trace` begins to trace this process, where its environment asks for that; `local_machine` runs models
    in this process.
    `address` is where every client goes, whatever address, profile or login there is; None: each finds its
    own. `peerloom.testing` makes one for a system in memory.
    """

    dial: Callable[[Identity | None], Dialer] = Dialer
    clock: Clock = field(default_factory=SystemClock)
    chance: random.Random = field(default_factory=random.Random)
    loop_thread: Callable[[], LoopThread] = LoopThread
    address: Address | None = None
    trace: Callable[[], None] = start_client_tracing
    local_machine: Callable[[Clock], "LocalMachine"] = own_machine

    def find_address(self, argument: str | None, identity: str, profile: str) -> Address:
        """The registry's address. Raises what `find_address` of an argument raises."""
        return self.address or find_address(argument, identity, profile=profile)


_in_use: list[TransportSeam] = []


def transport_in_use() -> TransportSeam:
    """What clients take that are given no transport: the network, unless another one is in use."""
    return _in_use[-1] if _in_use else TransportSeam()


@contextmanager
def use_transport(transport: TransportSeam) -> Iterator[None]:
    """While this lasts, clients that are made without a transport, in any thread, take this one."""
    _in_use.append(transport)
    try:
        yield
    finally:
        _in_use.remove(transport)
