"""Kill a worker in the middle of a training, and see that no batch was lost or used twice.

python examples/survive_a_kill.py        beside a system on this machine: peerloom up
"""

import os
import signal

import grpc

import peerloom
from peerloom.v1.node_agent_pb2 import WatchWorkersRequest
from peerloom.v1.node_agent_pb2_grpc import NodeAgentServiceStub


def kill_one(job: peerloom.JobHandle, node: peerloom.Node) -> None:
    """The agent tells which processes work for the job; one of them gets SIGKILL."""
    with grpc.insecure_channel(node.address) as channel:
        agent = NodeAgentServiceStub(channel)
        worker = next(agent.WatchWorkers(WatchWorkersRequest(job_id=job.id))).worker
    os.kill(worker.pid, signal.SIGKILL)
    print(f"killed a worker on {node.name}")


with peerloom.Client() as client:
    job = client.train("digits", requests=2, epochs=8)
    workers: tuple[peerloom.Worker, ...] = ()
    for event in job.watch():
        if isinstance(event, peerloom.GenerationFormed | peerloom.WorkerLost):
            print(event)
        if isinstance(event, peerloom.GenerationFormed) and not workers:
            workers = event.workers
        if isinstance(event, peerloom.EpochFinished) and event.epoch == 1:
            kill_one(job, client.node(workers[-1].node_name))
    result, ledger = job.result(), job.status().ledger
    print(f"{result.state}: {result.metric_name} {result.metric:.3f}")
    assert ledger is not None
    print(f"{ledger.training_samples:,} samples an epoch, each used exactly once: {ledger.is_exact}")
