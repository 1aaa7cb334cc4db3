"""Nodes, sessions and services."""

from peerloom.client.conversions.words import time_of, word_of
from peerloom.client.types import Accelerator, GpuLoad, MachineLoad, MachineSpeed, Node, NodeEvent, Session
from peerloom.v1 import common_pb2, registry_pb2


def node_of(message: registry_pb2.Node) -> Node:
    """A Node message as a value."""
    spec = message.spec
    return Node(
        id=message.node_id,
        name=spec.name,
        address=spec.address,
        state=word_of(registry_pb2.NodeState, message.state),
        reason=message.state_reason,
        slots=spec.slots,
        free_slots=message.slots.free if message.HasField("slots") else None,
        accelerators=tuple(_accelerator(each) for each in spec.accelerators),
        speed=_speed(spec.speed) if spec.HasField("speed") else None,
        labels=dict(spec.labels),
        draining=message.draining,
        incarnation=message.incarnation,
        registered_time=time_of(message, "registered_time"),
        last_seen_time=time_of(message, "last_seen_time"),
        online_s=message.online_s or None,
        withheld=message.withheld,
        owner=spec.owner,
        relay=spec.relay,
        via=spec.via,
        load=_load(message.load) if message.HasField("load") else None,
    )


def node_event_of(message: registry_pb2.WatchNodesResponse) -> NodeEvent:
    """A WatchNodesResponse message as a value."""
    return NodeEvent(
        sequence=message.sequence,
        registry_id=message.registry_id,
        kind=word_of(registry_pb2.NodeEventKind, message.kind),
        node=node_of(message.node),
        reason=message.reason,
        online_s=message.online_s or None,
        time=time_of(message, "time"),
    )


def session_of(message: registry_pb2.Session) -> Session:
    """A Session message as a value."""
    return Session(
        id=message.session_id,
        node_id=message.node_id,
        node_name=message.node_name,
        start_time=time_of(message, "start_time"),
        end_time=time_of(message, "end_time"),
        online_s=message.online_s,
        interrupted=message.interrupted,
        end_reason=message.end_reason,
    )


def _accelerator(message: common_pb2.Accelerator) -> Accelerator:
    return Accelerator(message.kind, message.model, message.count, message.memory_bytes)


def _speed(message: common_pb2.MachineSpeed) -> MachineSpeed:
    return MachineSpeed(
        message.matmul_gflops,
        message.memory_bytes_per_s,
        message.disk_bytes_per_s,
        training_gflops=message.training_gflops or None,
        heartbeat_s=message.heartbeat_s or None,
        measured_time=time_of(message, "measured_time"),
    )


def _load(message: registry_pb2.MachineLoad) -> MachineLoad:
    gpus = [
        GpuLoad(gpu.use if gpu.HasField("use") else None, gpu.memory_used_bytes, gpu.memory_total_bytes)
        for gpu in message.gpus
    ]
    return MachineLoad(
        cpu_use=message.cpu_use,
        own_cpu_use=message.own_cpu_use,
        cores=message.cores,
        memory_used_bytes=message.memory_used_bytes,
        memory_total_bytes=message.memory_total_bytes,
        gpus=tuple(gpus),
    )
