"""`python -m peerloom.services.node_agent`: one agent on one machine."""

import asyncio
import os
import socket
import sys
from contextlib import AsyncExitStack
from functools import partial

from peerloom.admission.joining import enter
from peerloom.admission.staying import keeping_fresh
from peerloom.kit.clock import Clock, SystemClock
from peerloom.kit.config import load_config
from peerloom.kit.directory import Directory
from peerloom.kit.logs import configure_logs
from peerloom.kit.server import Endpoint, Server, run
from peerloom.kit.tracing_setup import start_tracing
from peerloom.sandbox.process_environment import clean_environment
from peerloom.services.node_agent.agent_runtime import AgentRuntime, look_at_machine
from peerloom.services.node_agent.artifact_exchange import UseKeeper, open_artifacts, open_store
from peerloom.services.node_agent.config import SANDBOX_LABEL, NodeConfig
from peerloom.services.node_agent.inference_process import (
    InferenceProcess,
    InferenceServer,
    inference_command,
)
from peerloom.services.node_agent.membership.advertising import PendingChanges
from peerloom.services.node_agent.membership.child_identities import ChildIdentities
from peerloom.services.node_agent.membership.contact import RegistryContact
from peerloom.services.node_agent.membership.heartbeats import Heartbeats
from peerloom.services.node_agent.membership.listed_trainers import ListedTrainers
from peerloom.services.node_agent.membership.node_key import (
    load_node_key,
    lock_state,
    probe_state,
    valid_name,
)
from peerloom.services.node_agent.membership.node_status import NodeStatus
from peerloom.services.node_agent.membership.reachability import advertised_address
from peerloom.services.node_agent.membership.registration import Registration
from peerloom.services.node_agent.node_metrics import NodeMetrics
from peerloom.services.node_agent.owner.enforcement import PolicyEnforcer
from peerloom.services.node_agent.owner.inventory import LentMachine, lent_cores, usable_cores
from peerloom.services.node_agent.owner.load_meter import LoadMeter, keep_told
from peerloom.services.node_agent.owner.measuring import Measuring
from peerloom.services.node_agent.servicer import AgentDependencies, NodeAgentServicer
from peerloom.services.node_agent.tunnels.node_tunnels import NodeTunnels, open_tunnels
from peerloom.services.node_agent.tunnels.way_in import WayIn
from peerloom.services.node_agent.tunnels.worker_ports import WorkerPorts
from peerloom.services.node_agent.workers.assigning import assigner
from peerloom.services.node_agent.workers.grants import (
    LOGS_FOLDER,
    WORKERS_FOLDER,
    check_sandbox,
    inference_grant,
    inference_limits,
    sandbox_label,
)
from peerloom.services.node_agent.workers.leader_discovery import LeaderDiscovery
from peerloom.services.node_agent.workers.local_pool import LocalWorkerPool
from peerloom.services.node_agent.workers.slots import SlotTable
from peerloom.services.node_agent.workers.starter import WorkerStarter
from peerloom.services.node_agent.workers.worker_folders import WorkerFolders
from peerloom.services.node_agent.workers.worker_logs import LogFolder
from peerloom.v1.artifact_pb2_grpc import add_ArtifactServiceServicer_to_server
from peerloom.v1.node_agent_pb2_grpc import add_NodeAgentServiceServicer_to_server
from peerloom.v1.registry_pb2 import NodeSpec

SERVICES = ("peerloom.v1.NodeAgentService", "peerloom.v1.ArtifactService")
_WORKERS_GRACE_S = 6.0  # a step boundary may be seconds away; Embedded waits 10 s for all of it


async def main() -> None:
    """Runs the agent of this machine until it is asked to stop."""
    config = load_config(NodeConfig, "node", sys.argv[1:])
    configure_logs("node", config.log_level)
    start_tracing("node")
    with lock_state(config.state_folder()):
        identity = await enter(config.state_folder(), config.join, SystemClock())
        runtime = await look_at_machine(config, identity)
        check_sandbox(config, runtime.sandbox)
        await serve(
            config,
            Server(Endpoint(config.listen, identity, config.allow_plain, config.metrics), SERVICES),
            runtime,
        )


async def serve(config: NodeConfig, server: Server, runtime: AgentRuntime) -> None:
    """Puts the agent together and serves until `server` is asked to stop.

    Raises the registry's refusal, if it takes this node under no circumstances, and ConfigurationError for
    a state folder or an address that can't be used.
    """
    clock, machine, state = runtime.clock, runtime.machine, config.state_folder()
    spec = _spec_of(config, runtime, advertised_address(config.advertise, server.address, config.registry))
    status, pending, directory = NodeStatus(), PendingChanges(), Directory(runtime.dialer, config.registry)
    slots, now_s = SlotTable(machine.slots, on_change=status.beat_due.set), clock.monotonic_s
    children = ChildIdentities(runtime.dialer, config.registry, clock)
    store = await asyncio.to_thread(open_store, config, pending)
    uses = UseKeeper(store, lambda job_id: slots.is_held_for(job_id, now_s()), clock)
    artifacts = open_artifacts(config, runtime.dialer, directory, store, pending, status, clock)
    tunnels = open_tunnels(config, spec, server.address, runtime.dialer, directory, status, artifacts)
    logs = LogFolder(state / LOGS_FOLDER, config.log_limit_bytes, config.log_jobs)
    pool = _pool(config, runtime, spec.address, slots, logs, children, status)
    inference = _inference(config, runtime, server.address, tunnels.way_in, children)
    policy = _policy(config, runtime, pool, status, inference)
    contact, registry, advertiser = RegistryContact(config.registry), directory.registry, artifacts.advertiser
    heartbeats = Heartbeats(registry, status, lambda: slots.count(now_s()), advertiser, contact, clock)
    registration = Registration(registry, load_node_key(state), spec, status, heartbeats, contact, clock)
    agent = AgentDependencies(
        config=config,
        machine=machine,
        spec=spec,
        status=status,
        slots=slots,
        pool=pool,
        policy=policy,
        logs=logs,
        artifacts=store,
        inference=inference,
        is_plain=runtime.dialer.identity is None or config.plain_collectives,
        worker_ports=WorkerPorts(tunnels.way_in.reached_at, pool.running, lambda: status.node_id),
        relay=tunnels.relay,
        trainers=ListedTrainers(directory.list_trainers, clock),
        available_bytes=runtime.meter.available_bytes,
        clock=clock,
        stopping=server.stopping,
    )
    server.add_servicer(add_NodeAgentServiceServicer_to_server, NodeAgentServicer(agent))
    server.add_servicer(add_ArtifactServiceServicer_to_server, artifacts.exchange.servicer)
    server.observe(NodeMetrics(agent, runtime.dialer))
    async with directory, AsyncExitStack() as opened, server:
        opened.push_async_callback(artifacts.exchange.close)
        opened.push_async_callback(children.close)
        await opened.enter_async_context(keeping_fresh(server, runtime.dialer, config.registry, clock))
        await server.start({"state": lambda: probe_state(state), "registry": contact.probe})
        status.note_speed(await runtime.measure_speed())
        artifacts.start(server, uses)
        _start_worker_tasks(server, runtime.starter, pool, directory, children, policy)
        measuring = _measuring(config, machine, slots, status, heartbeats, clock)
        _start_looks(server, measuring, runtime.load_meter, status)
        tunnels.start(server)
        staying = partial(_stay_registered, tunnels, registration, server)
        server.start_task("registration", staying, may_return=True)
        await _serve_until_left(server, registration, pool, runtime, inference)
    if registration.refusal is not None:
        raise registration.refusal


def _spec_of(config: NodeConfig, runtime: AgentRuntime, address: str) -> NodeSpec:
    """What the node says of itself; how fast it is stands in its status."""
    return NodeSpec(
        name=config.name or valid_name(socket.gethostname()),
        address=address,
        slots=runtime.machine.slots,
        accelerators=runtime.machine.accelerators,
        labels={**config.label_map(), SANDBOX_LABEL: sandbox_label(config, runtime.sandbox)},
        relay=config.relay,
    )


def _pool(
    config: NodeConfig,
    runtime: AgentRuntime,
    address: str,
    slots: SlotTable,
    logs: LogFolder,
    children: ChildIdentities,
    status: NodeStatus,
) -> LocalWorkerPool:
    assign = assigner(config, runtime.machine, address, status)
    folders = WorkerFolders(config.state_folder() / WORKERS_FOLDER)
    return LocalWorkerPool(slots, runtime.starter, logs, folders, assign, children.of_worker)


def _inference(
    config: NodeConfig, runtime: AgentRuntime, address: str, way_in: WayIn, children: ChildIdentities
) -> InferenceServer | None:
    if not config.inference:
        return None
    if runtime.open_inference is not None:
        return runtime.open_inference(address, way_in.reached_at)
    folder = config.state_folder() / "inference"
    grant = inference_grant(config, runtime.machine, folder)
    command = inference_command(config, runtime.machine, address, folder, grant)
    environment = clean_environment(os.environ, is_confined=grant is not None)
    groups, limits = runtime.cgroups, inference_limits(config)
    make_group = partial(groups.group, limits) if groups is not None else None
    return InferenceProcess(
        folder, command, environment, way_in.reached_at, runtime.clock, children.of_inference, make_group
    )


def _policy(
    config: NodeConfig,
    runtime: AgentRuntime,
    pool: LocalWorkerPool,
    status: NodeStatus,
    inference: InferenceServer | None,
) -> PolicyEnforcer:
    async def apply_withheld(reason: str) -> None:
        status.note_withheld(reason)
        runtime.starter.want(not reason)
        if reason and inference is not None:
            await inference.stop(_WORKERS_GRACE_S)

    limits, memory_bytes = config.owner_limits(), config.memory_limit_bytes
    grace_s, meter, clock = config.handover_grace_s, runtime.meter, runtime.clock
    return PolicyEnforcer(pool, status, meter, clock, limits, memory_bytes, grace_s, apply_withheld)


def _measuring(
    config: NodeConfig,
    machine: LentMachine,
    slots: SlotTable,
    status: NodeStatus,
    heartbeats: Heartbeats,
    clock: Clock,
) -> Measuring:
    def is_idle() -> bool:
        all_free = len(slots.free(clock.monotonic_s())) == slots.total > 0
        return all_free and not status.withheld and not status.is_draining

    return Measuring(
        (*config.measure_command, machine.accelerator_kind, str(machine.threads)),
        config.measure_interval_s,
        is_idle,
        heartbeat_s=lambda: heartbeats.median_answer_s,
        wall_s=clock.wall_s,
        tell=status.note_speed,
        cores=lent_cores(usable_cores(), config.processor_share),
    )


def _start_looks(server: Server, measuring: Measuring, meter: LoadMeter, status: NodeStatus) -> None:
    server.start_task("measuring", partial(measuring.keep, status.speed))
    server.start_task("load", partial(keep_told, meter, status.note_load))


def _start_worker_tasks(
    server: Server,
    starter: WorkerStarter,
    pool: LocalWorkerPool,
    directory: Directory,
    children: ChildIdentities,
    policy: PolicyEnforcer,
) -> None:
    server.start_task("worker starter", starter.keep)
    server.start_task("worker pool", pool.keep)
    server.start_task("leader discovery", LeaderDiscovery(pool, directory.leading_trainer).look_forever)
    server.start_task("worker certificates", children.keep)
    server.start_task("owner policy", policy.keep)


async def _stay_registered(tunnels: NodeTunnels, registration: Registration, server: Server) -> None:
    await tunnels.way_in.settled.wait()
    await registration.keep()
    server.stop()


async def _serve_until_left(
    server: Server,
    registration: Registration,
    pool: LocalWorkerPool,
    runtime: AgentRuntime,
    inference: InferenceServer | None,
) -> None:
    """Serves until a stop is asked for; says goodbye while the workers end, then ends what started them."""

    async def leave() -> None:
        await server.stopping.wait()
        await asyncio.gather(registration.leave("the agent was stopped"), pool.close(_WORKERS_GRACE_S))

    leaving = server.start_task("leaving", leave)
    await server.serve_until_stopped()
    await asyncio.wait([leaving])  # whether it failed is for the server to tell
    await runtime.starter.close()
    if inference is not None:
        await inference.stop(_WORKERS_GRACE_S)
    if runtime.cgroups is not None:
        await asyncio.to_thread(runtime.cgroups.close)


if __name__ == "__main__":
    run(main)
