"""What an agent meets of the world, and how that is found on a real machine; a test hands in its own."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from peerloom.kit.clock import SystemClock
from peerloom.kit.dialing import Dialer
from peerloom.kit.identity import Identity
from peerloom.kit.runtime import Runtime
from peerloom.sandbox.kernel_support import SandboxSupport, find_support
from peerloom.sandbox.process_environment import clean_environment
from peerloom.services.node_agent.config import NodeConfig
from peerloom.services.node_agent.owner.enforcement import UsageMeter
from peerloom.services.node_agent.owner.host_usage import HostUsageMeter
from peerloom.services.node_agent.owner.initial_speed import measure_speed
from peerloom.services.node_agent.owner.inventory import (
    LentMachine,
    describe_machine,
    find_gpus,
    lent_cores,
    read_processor,
    usable_cores,
)
from peerloom.services.node_agent.workers.fork_client import ForkServerClient
from peerloom.services.node_agent.workers.starter import WorkerStarter
from peerloom.v1.common_pb2 import MachineSpeed


@dataclass(frozen=True)
class AgentRuntime(Runtime):
    """What an agent takes from the world besides time and network: the machine and its processes.

    `measure_speed` measures the machine once, at the start; `sandbox` is what its kernel can hold.
    """

    machine: LentMachine
    starter: WorkerStarter
    meter: UsageMeter
    measure_speed: Callable[[], Awaitable[MachineSpeed]]
    sandbox: SandboxSupport


async def look_at_machine(config: NodeConfig, identity: Identity | None) -> AgentRuntime:
    """The runtime of an agent that lends this very machine, and proves itself with `identity`."""
    gpus, processor = await find_gpus(), read_processor()
    cores = lent_cores(usable_cores(), config.processor_share)
    machine = describe_machine(
        gpus, config.slots, config.accelerator, config.threads_per_slot, len(cores), processor
    )
    environment = clean_environment(os.environ, is_confined=not config.no_sandbox)
    starter = ForkServerClient(
        config.worker_command,
        {**environment, "OMP_NUM_THREADS": str(machine.threads)},
        cores,
        keeps_warm=config.keep_warm and machine.slots > 0,
    )
    return AgentRuntime(
        clock=SystemClock(),
        dialer=Dialer(identity),
        machine=machine,
        starter=starter,
        meter=HostUsageMeter(),
        measure_speed=lambda: asyncio.to_thread(measure_speed, config.state_folder(), machine.threads),
        sandbox=find_support(),
    )
