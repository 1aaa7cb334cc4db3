"""`python -m peerloom.services.node_agent`: one agent on one machine."""

import asyncio
import socket
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from peerloom.kit.artifact_store import ArtifactStore
from peerloom.kit.channel import Peer
from peerloom.kit.clock import Clock, SystemClock
from peerloom.kit.config import load_config
from peerloom.kit.directory import Directory
from peerloom.kit.exchange.holders import holders_at
from peerloom.kit.exchange.service import open_exchange
from peerloom.kit.logs import configure_logs
from peerloom.kit.server import Endpoint, Server, run
from peerloom.services.node_agent.addresses import advertised_address, interface_of
from peerloom.services.node_agent.advertising import Advertiser
from peerloom.services.node_agent.config import NodeConfig
from peerloom.services.node_agent.crew import Crew, Worker
from peerloom.services.node_agent.exchange import ExchangePart, ExchangeWitness, UseKeeper
from peerloom.services.node_agent.fork_server import ForkServer
from peerloom.services.node_agent.identity import load_node_key, lock_state, probe_state, valid_name
from peerloom.services.node_agent.inference import InferenceProcess
from peerloom.services.node_agent.lender import Lender
from peerloom.services.node_agent.machine import (
    Machine,
    describe_machine,
    find_gpus,
    lent_cores,
    read_processor,
    usable_cores,
)
from peerloom.services.node_agent.measuring import Measuring
from peerloom.services.node_agent.membership import Membership
from peerloom.services.node_agent.servicer import Agent, NodeAgentServicer
from peerloom.services.node_agent.slots import SlotTable
from peerloom.services.node_agent.speed import measure_speed
from peerloom.services.node_agent.worker_logs import LogFolder
from peerloom.v1.artifact_pb2_grpc import add_ArtifactServiceServicer_to_server
from peerloom.v1.common_pb2 import MachineSpeed
from peerloom.v1.node_agent_pb2_grpc import add_NodeAgentServiceServicer_to_server
from peerloom.v1.registry_pb2 import NodeSpec
from peerloom.v1.registry_pb2_grpc import RegistryServiceStub
from peerloom.worker.assignment import Assignment

_SERVICES = ("peerloom.v1.NodeAgentService", "peerloom.v1.ArtifactService")
_WORKERS_GRACE_S = 6.0  # a step boundary may be seconds away; Embedded waits 10 s for all of it


async def main() -> None:
    """Runs the agent until it is asked to stop."""
    config = load_config(NodeConfig, "node", sys.argv[1:])
    configure_logs("node", config.log_level)
    state = config.state_folder()
    with lock_state(state):
        async with Peer(RegistryServiceStub, "registry", config.registry, config.tls_ca) as registry:
            await _run(config, state, registry)


async def _run(config: NodeConfig, state: Path, registry: Peer) -> None:
    node_key = load_node_key(state)
    machine = await _look_at_machine(config)
    spec = _spec_of(config, machine)
    clock, slots_changed = SystemClock(), asyncio.Event()
    slots = SlotTable(machine.slots, slots_changed.set)
    membership = Membership(registry, node_key, lambda: slots.count(clock.monotonic_s()), slots_changed)
    artifacts = await asyncio.to_thread(ArtifactStore, state / "artifacts", config.artifact_limit_bytes)
    logs = LogFolder(state / "logs", config.log_limit_bytes, config.log_jobs)
    forks = _fork_server(config, machine, membership)
    crew = Crew(slots, forks, logs, _assigner(machine, spec, config.tls_ca))

    inference = InferenceProcess(state / "inference") if config.inference else None
    lender = _lender(config, membership, forks, crew, inference, clock)

    part = _exchange_part(config, registry, membership, artifacts, slots, clock)
    endpoint = Endpoint(config.listen, config.tls_certificate, config.tls_key, config.allow_plain)
    server = Server(endpoint, _SERVICES, {"state": lambda: probe_state(state), "registry": membership.probe})
    agent = Agent(
        machine=machine,
        spec=spec,
        slots=slots,
        crew=crew,
        lender=lender,
        logs=logs,
        artifacts=artifacts,
        membership=membership,
        inference=inference,
        clock=clock,
        stopping=server.stopping,
        version=version("peerloom"),
        memory_limit_bytes=config.memory_limit_bytes,
        allow_code=config.allow_code,
        reservation_s=config.reservation_s,
    )
    add_NodeAgentServiceServicer_to_server(NodeAgentServicer(agent), server.grpc)
    add_ArtifactServiceServicer_to_server(part.exchange.servicer, server.grpc)
    address = await server.start()
    spec.address = advertised_address(config.advertise, address, config.registry)
    if inference is not None:
        inference.configure(_inference_arguments(config, machine, address), spec.address)
    print(f"address={address}", flush=True)
    spec.speed.CopyFrom(await asyncio.to_thread(measure_speed, state, machine.threads))

    measuring = _measuring(config, machine, spec, slots, membership, clock)
    works = (membership.keep(spec), forks.keep(), crew.keep_logs_short(), lender.keep())
    tasks = part.start() + [asyncio.create_task(one) for one in (*works, measuring.keep(spec.speed))]
    for task in tasks:
        task.add_done_callback(lambda _: server.stop())
    leaving = asyncio.create_task(_leave(server, membership, crew, forks, tasks))
    await server.serve_until_stopped()
    if inference is not None:
        await inference.stop(_WORKERS_GRACE_S)
    await part.close()
    await leaving


async def _look_at_machine(config: NodeConfig) -> Machine:
    gpus, processor = await find_gpus(), read_processor()
    cores = len(lent_cores(usable_cores(), config.processor_share))
    return describe_machine(gpus, config.slots, config.accelerator, config.threads_per_slot, cores, processor)


def _spec_of(config: NodeConfig, machine: Machine) -> NodeSpec:
    """What the node says of itself; its address and its speed are found once it listens."""
    return NodeSpec(
        name=config.name or valid_name(socket.gethostname()),
        slots=machine.slots,
        accelerators=machine.accelerators,
        labels=config.label_map(),
    )


def _inference_arguments(config: NodeConfig, machine: Machine, agent_address: str) -> list[str]:
    """The flags of the inference server, which listens beside the agent."""
    arguments = [f"--listen={config.listen.rpartition(':')[0]}:0", f"--agent={agent_address}"]
    arguments.append(f"--registry={config.registry}")
    arguments += [f"--memory-bytes={config.inference_memory_bytes}", f"--log-level={config.log_level}"]
    arguments += [f"--threads={machine.threads}", f"--accelerator={machine.accelerator_kind or 'cpu'}"]
    arguments += [f"--tls-certificate={config.tls_certificate}", f"--tls-key={config.tls_key}"]
    return [*arguments, f"--tls-ca={config.tls_ca}", f"--allow-plain={str(config.allow_plain).lower()}"]


def _exchange_part(
    config: NodeConfig,
    registry: Peer,
    membership: Membership,
    store: ArtifactStore,
    slots: SlotTable,
    clock: Clock,
) -> ExchangePart:
    witness = ExchangeWitness(Directory(config.registry, config.tls_ca), lambda: membership.node_id, clock)
    is_plain = not config.tls_certificate and config.bulk_transfers
    exchange = open_exchange(
        store,
        holders_at(registry, lambda: membership.node_id),
        witness.note,
        bulk_host=config.listen.rpartition(":")[0] if is_plain else "",
        tls_ca=config.tls_ca,
        upload_limit_bytes_per_s=config.upload_limit_bytes_per_s,
    )
    advertiser = Advertiser(registry, lambda: (*store.digests(), *exchange.stock.fetching))
    store.on_change = exchange.stock.on_begun = advertiser.note_change
    exchange.servicer.settle = advertiser.settle
    membership.artifact_version, membership.on_artifacts = lambda: advertiser.version, advertiser.hear
    use = UseKeeper(store, lambda job_id: slots.is_held_for(job_id, clock.monotonic_s()), clock)
    return ExchangePart(exchange, advertiser, witness, use)


def _fork_server(config: NodeConfig, machine: Machine, membership: Membership) -> ForkServer:
    is_kept = config.keep_warm and machine.slots > 0
    return ForkServer(
        config.worker_command,
        {"OMP_NUM_THREADS": str(machine.threads)},
        lambda: is_kept and not membership.withheld,  # what nobody may use shan't take up the owner's memory
        lent_cores(usable_cores(), config.processor_share),
    )


def _lender(
    config: NodeConfig,
    membership: Membership,
    forks: ForkServer,
    crew: Crew,
    inference: InferenceProcess | None,
    clock: Clock,
) -> Lender:
    async def withhold(reason: str) -> None:
        membership.withhold(reason)
        forks.look_again()
        if reason and inference is not None:
            await inference.stop(_WORKERS_GRACE_S)

    limits, memory_bytes = config.owner_limits(), config.memory_limit_bytes
    grace_s = config.handover_grace_s
    lender = Lender(crew, clock, limits, memory_bytes, grace_s, lambda: membership.draining, withhold)
    membership.on_drain = lender.changed.set
    return lender


def _measuring(
    config: NodeConfig,
    machine: Machine,
    spec: NodeSpec,
    slots: SlotTable,
    membership: Membership,
    clock: Clock,
) -> Measuring:
    def is_idle() -> bool:
        all_free = len(slots.free(clock.monotonic_s())) == slots.total > 0
        return all_free and not membership.withheld and not membership.draining

    def tell(speed: MachineSpeed) -> None:
        spec.speed.CopyFrom(speed)  # for the next registration
        membership.tell_speed(speed)

    return Measuring(
        (*config.measure_command, machine.accelerator_kind, str(machine.threads)),
        config.measure_interval_s,
        is_idle,
        heartbeat_s=lambda: membership.heartbeat_s,
        wall_s=clock.wall_s,
        tell=tell,
        cores=lent_cores(usable_cores(), config.processor_share),
    )


def _assigner(machine: Machine, spec: NodeSpec, tls_ca: str) -> Callable[[Worker, str], Assignment]:
    def assign(worker: Worker, trainer_address: str) -> Assignment:
        return Assignment(
            worker_id=worker.worker_id,
            job_id=worker.job_id,
            trainer_address=trainer_address,
            agent_address=spec.address,
            slot=worker.slot,
            accelerator_kind=machine.accelerator_kind,
            device_index=worker.slot if machine.accelerator_kind == "cuda" else 0,
            interface=interface_of(spec.address.rpartition(":")[0]),
            threads=machine.threads,
            log_path=str(worker.log_path),
            tls_ca=tls_ca,
        )

    return assign


async def _leave(
    server: Server, membership: Membership, crew: Crew, forks: ForkServer, tasks: list[asyncio.Task[None]]
) -> None:
    """Once a stop is asked for: says goodbye, ends the workers, and raises what made a task end."""
    await server.stopping.wait()
    await asyncio.gather(membership.leave("the agent was stopped"), crew.close(_WORKERS_GRACE_S))
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    await forks.close()
    for result in results:
        if isinstance(result, Exception):
            raise result


if __name__ == "__main__":
    run(main)
