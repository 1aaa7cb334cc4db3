"""What an agent meets of the world, and how that is found on a real machine; a test hands in its own."""

import asyncio
import dataclasses
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from peerloom.kit.clock import SystemClock
from peerloom.kit.dialing import Dialer
from peerloom.kit.identity import Identity
from peerloom.kit.runtime import Runtime
from peerloom.sandbox.cgroups import CgroupParent
from peerloom.sandbox.kernel_support import SandboxSupport
from peerloom.sandbox.process_environment import CORES_VARIABLE, clean_environment
from peerloom.services.node_agent.config import NodeConfig
from peerloom.services.node_agent.inference_process import InferenceServer, ReachedAt
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
from peerloom.services.node_agent.owner.load_meter import LoadMeter, MachineLoadMeter
from peerloom.services.node_agent.workers.fork_client import ForkServerClient
from peerloom.services.node_agent.workers.grants import (
    find_cgroups,
    find_layers,
    worker_limits,
    wrapped_command,
)
from peerloom.services.node_agent.workers.starter import WorkerStarter
from peerloom.services.node_agent.workers.worker_origins import WorkerOrigins
from peerloom.v1.common_pb2 import MachineSpeed


@dataclass(frozen=True)
class AgentRuntime(Runtime):
    """What an agent takes from the world besides time and network: the machine and its processes.

    `measure_speed` measures the machine once, at the start; `sandbox` is what holds them here, and `cgroups`
    has room for a cgroup for each, if this agent may make any. `open_inference` makes an inference server for
    the agent at an address; None: it is a process of its own.
    """

    machine: LentMachine
    starter: WorkerStarter
    meter: UsageMeter
    load_meter: LoadMeter
    measure_speed: Callable[[], Awaitable[MachineSpeed]]
    sandbox: SandboxSupport
    cgroups: CgroupParent | None = None
    open_inference: Callable[[str, ReachedAt], InferenceServer] | None = None


async def look_at_machine(config: NodeConfig, identity: Identity | None) -> AgentRuntime:
    """The runtime of an agent that lends this very machine, and proves itself with `identity`."""
    gpus, processor = await find_gpus(), read_processor()
    cores = lent_cores(usable_cores(), config.processor_share)
    machine = describe_machine(
        gpus, config.slots, config.accelerator, config.threads_per_slot, len(cores), processor
    )
    environment = clean_environment(os.environ, is_confined=not config.no_sandbox)
    cgroups = await asyncio.to_thread(find_cgroups, config)
    layers = await asyncio.to_thread(find_layers, config)
    sandbox = dataclasses.replace(layers, cgroup=cgroups is not None)
    environment["OMP_NUM_THREADS"] = str(machine.threads)
    environment[CORES_VARIABLE] = ",".join(map(str, cores))
    keeps_warm = config.keep_warm and machine.slots > 0
    make_group = partial(cgroups.group, worker_limits(config)) if cgroups is not None else None
    forks = partial(ForkServerClient, environment=environment, keeps_warm=keeps_warm, make_group=make_group)
    starter = WorkerOrigins(
        forks(config.worker_command),
        forks(wrapped_command(config, machine)) if sandbox.bubblewrap else None,
    )
    return AgentRuntime(
        clock=SystemClock(),
        dialer=Dialer(identity),
        machine=machine,
        starter=starter,
        meter=HostUsageMeter(),
        load_meter=MachineLoadMeter([gpu.uuid for gpu in gpus]),
        measure_speed=lambda: asyncio.to_thread(measure_speed, config.state_folder(), machine.threads),
        sandbox=sandbox,
        cgroups=cgroups,
    )
