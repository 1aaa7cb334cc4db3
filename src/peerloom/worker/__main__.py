"""`python -m peerloom.worker`: imports everything, then forks workers, which get an assignment and train."""

import gc
import os
import sys
from pathlib import Path

from peerloom.kit import tracing
from peerloom.kit.tracing_setup import end_tracing, preload_tracing, start_tracing
from peerloom.sandbox.confining import confine, temporary_files_in
from peerloom.sandbox.readable import known_interpreter_files
from peerloom.worker.agent_commands import AgentCommands
from peerloom.worker.assignment import Assignment
from peerloom.worker.fork_server import keep_to_lent_cores, serve


def import_all_that_is_slow() -> None:
    """Imports torch with the parts that it loads at first use, the worker, and the trainer's protocol.

    Leaves the process fit to be forked: with one thread, and without gRPC or CUDA.
    """
    gc.disable()  # what is imported stays: looking through it again and again takes a fifth of the time
    # Asked of the driver itself, whether there is a GPU would make CUDA unusable in every fork.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    import torch
    import torch.distributed
    import torch.nn.parallel

    import peerloom.v1.artifact_pb2_grpc
    import peerloom.v1.trainer_pb2_grpc
    import peerloom.worker.run

    # Loaded at the first step else, in which all others would wait for a newcomer.
    import peerloom.worker.sync.all_reduce
    import peerloom.worker.sync.alone
    import peerloom.worker.sync.codecs.microscaling
    import peerloom.worker.sync.codecs.quantising
    import peerloom.worker.sync.codecs.sparsifying
    import peerloom.worker.sync.codecs.two_bits
    import peerloom.worker.sync.robust.exchange
    import peerloom.worker.sync.scheduled  # noqa: F401  # all of them for their cost, not their names

    torch.set_num_threads(1)  # a pool of threads would not be there after the fork
    layer = torch.nn.Linear(2, 2)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    for parameter in layer.parameters():  # not by backward(): its threads for GPUs don't survive a fork
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()  # the first step of any optimiser imports torch._dynamo, over a second of work
    optimiser.zero_grad()
    known_interpreter_files()
    preload_tracing()
    gc.enable()


def work() -> int:
    """Runs one worker; 0 when the job ended, 1 when this worker can't go on."""
    line = sys.stdin.readline()
    if not line:
        return 0
    assignment = Assignment.from_json(line)
    _redirect_output(Path(assignment.log_path))
    if assignment.grant is not None:  # before the first thread, and before anything of the job is imported
        confine(assignment.grant)
    else:
        temporary_files_in(assignment.folder)
    agent = AgentCommands()
    if assignment.interface:  # else no interface carries the node's address (NAT): let the library choose
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = assignment.interface
    if os.environ.get("PEERLOOM_WORKERS_SHARE_CARDS"):
        # For tests on one card: NCCL refuses two ranks on it unless they seem to be different hosts.
        os.environ["NCCL_HOSTID"] = assignment.worker_id

    from peerloom.kit.logs import configure_logs
    from peerloom.worker.run import run_worker

    configure_logs("worker")
    start_tracing("worker")
    tracing.adopt(assignment.traceparent)
    try:
        return run_worker(assignment, agent)
    finally:
        end_tracing()  # a forked process ends without the interpreter's own end


def _redirect_output(log_path: Path) -> None:
    log_path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


if __name__ == "__main__":
    keep_to_lent_cores()
    import_all_that_is_slow()
    serve(work)
