"""What a worker of this node is told: its work, and what the agent knows of the node."""

from collections.abc import Callable

from peerloom.kit import tracing
from peerloom.services.node_agent.config import NodeConfig
from peerloom.services.node_agent.membership.node_status import NodeStatus
from peerloom.services.node_agent.membership.reachability import interface_of
from peerloom.services.node_agent.owner.inventory import LentMachine
from peerloom.services.node_agent.workers.grants import worker_grant
from peerloom.services.node_agent.workers.local_pool import PooledWorker
from peerloom.worker.assignment import Assignment, Work


def assigner(
    config: NodeConfig, machine: LentMachine, address: str, status: NodeStatus
) -> Callable[[PooledWorker, Work], Assignment]:
    """Makes the assignment of a worker, of what this agent, reached at `address`, knows of its node."""

    def assign(worker: PooledWorker, work: Work) -> Assignment:
        return Assignment(
            worker_id=worker.worker_id,
            job_id=worker.job_id,
            work=work,
            agent_address=address,
            slot=worker.slot,
            accelerator_kind=machine.accelerator_kind,
            device_index=worker.slot if machine.accelerator_kind == "cuda" else 0,
            interface=interface_of(address.rpartition(":")[0]),
            threads=machine.threads,
            log_path=str(worker.log_path),
            secret=worker.secret,
            folder=str(worker.folder),
            data_roots=config.data_roots(),
            identity=worker.identity,
            grant=worker_grant(config, machine, worker.folder),
            plain_collectives=config.plain_collectives,
            is_relayed=bool(status.via),
            traceparent=tracing.traceparent(),
        )

    return assign
