"""Each call of registry, selector and trainer, as `benchmarks.aged` times it; which it leaves out, and why.

What a call needs is made before the clock runs; what it answers is of the same size in a system of any age.
A stream is timed until its first message, and WatchJob, which ends, until its last.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

import grpc

from benchmarks.registry_agent import KEY, NAME, SLOTS
from peerloom.v1 import admission_pb2, artifact_pb2, registry_pb2, selector_pb2, trainer_pb2
from peerloom.v1.common_pb2 import SlotCount
from peerloom.v1.registry_pb2_grpc import RegistryServiceStub
from peerloom.v1.selector_pb2_grpc import SelectorServiceStub
from peerloom.v1.trainer_pb2_grpc import TrainerServiceStub

CALL_LIMIT_S = 60.0
PAGE = 100  # what lists give at once where nothing else is asked for
SESSIONS, UPDATES, INTERRUPTIONS = 2, 5, 20  # of a node, of its belief, of PAGE nodes: what a day leaves
NOWHERE = {"place": "nowhere"}  # no node says so: a job that wants it begins, asks nobody, and ends
_DIGEST = "1" * 64
_PLACE = "127.0.0.1:9"
Act = Callable[[], object]

# Of a service all calls, where its name stands here.
LEFT_OUT = {
    "AdmissionService": "needs a door, and asks for rows by their keys; only ListAdmitted tells of all",
    "JoinService": "needs a door too",
    "ArtifactService": "answers from files in a folder, and asks no table",
    "CheckReachability": "dials the node: what it takes is the network's",
    "GetJobLogs": "finds the job as GetJob does; the rest is what agents of its nodes answer",
    "WorkerSession": "needs a worker that trains, and asks memory alone",
}


@dataclass(frozen=True)
class System:
    """One whose calls are timed: its services, the first of its nodes, and two jobs, each by its id.

    `node_ids` are by the number in the node's name; of the jobs one has succeeded, and one was cut off.
    """

    channels: dict[str, grpc.Channel]
    node_ids: list[str]
    job_id: str
    cut_off_id: str
    run: str = field(default_factory=lambda: os.urandom(4).hex())
    submitted: list[str] = field(default_factory=list)

    @property
    def registry(self) -> RegistryServiceStub:
        """Its registry."""
        return RegistryServiceStub(self.channels["registry"])

    @property
    def selector(self) -> SelectorServiceStub:
        """Its selector."""
        return SelectorServiceStub(self.channels["selector"])

    @property
    def trainer(self) -> TrainerServiceStub:
        """Its trainer."""
        return TrainerServiceStub(self.channels["trainer"])

    def place(self, number: int) -> int:
        """The number of the node that a call is about: each in turn, none beside the one before."""
        return number * 37 % len(self.node_ids)

    def name(self, number: int) -> str:
        """That node's name."""
        return NAME.format(self.place(number))

    def register(self, name: str, key: str) -> registry_pb2.RegisterRequest:
        """The request of a node, which is new or comes back."""
        spec = registry_pb2.NodeSpec(name=name, address=_PLACE, slots=SLOTS)
        return registry_pb2.RegisterRequest(spec=spec, node_key=key, request_id=str(uuid4()))

    def lease(self, number: int) -> str:
        """The lease of a known node that comes back now."""
        request = self.register(self.name(number), KEY.format(self.place(number)))
        return str(_ask(self.registry.Register, request)().lease_id)

    def submit(self) -> None:
        """Hands in a job that no node is asked for."""
        request = trainer_pb2.SubmitJobRequest(request_id=str(uuid4()))
        request.spec.task = "digits"
        request.spec.requirements.labels.update(NOWHERE)
        self.submitted.append(_ask(self.trainer.SubmitJob, request)().job.job_id)

    def wait_until_ended(self, *job_ids: str) -> None:
        """Ends jobs, and returns when they have."""
        for job_id in job_ids:
            _ask(self.trainer.CancelJob, trainer_pb2.CancelJobRequest(job_id=job_id))()


def calls_of_services() -> dict[str, str]:
    """The calls that registry, selector and trainer serve, by the schema, each with its service's name."""
    files = (registry_pb2, admission_pb2, selector_pb2, trainer_pb2, artifact_pb2)
    services = [one for file in files for one in file.DESCRIPTOR.services_by_name.values()]
    return {method.name: service.name for service in services for method in service.methods}


def _ask(method: Any, request: Any) -> Callable[[], Any]:
    return partial(method, request, timeout=CALL_LIMIT_S)


def _first(method: Any, request: Any) -> Act:
    """Until the stream's first message."""

    def act() -> object:
        stream = method(request, timeout=CALL_LIMIT_S)
        message = next(stream)
        stream.cancel()
        return message

    return act


def _heartbeat(system: System, number: int) -> Act:
    beat = registry_pb2.HeartbeatRequest(
        lease_id=system.lease(number), slots=SlotCount(total=SLOTS, free=SLOTS)
    )
    beats: Iterator[registry_pb2.HeartbeatRequest] = iter([beat])
    return _first(system.registry.Heartbeat, beats)


def _register(system: System, number: int) -> Act:
    request = system.register(system.name(number), KEY.format(system.place(number)))
    return _ask(system.registry.Register, request)


def _deregister(system: System, number: int) -> Act:
    request = registry_pb2.DeregisterRequest(lease_id=system.lease(number))
    return _ask(system.registry.Deregister, request)


def _remove_node(system: System, number: int) -> Act:
    name = f"guest-{system.run}-{number}"
    _ask(system.registry.Register, system.register(name, f"key-of-{name}"))()
    return _ask(system.registry.RemoveNode, registry_pb2.RemoveNodeRequest(node=name, force=True))


def _drain(system: System, number: int) -> Act:
    node, undo = system.name(number // 2), number % 2 == 1
    return _ask(system.registry.Drain, registry_pb2.DrainRequest(node=node, undo=undo))


def _announce(system: System, number: int) -> Act:
    request = registry_pb2.AnnounceServiceRequest(
        kind=registry_pb2.SERVICE_KIND_SELECTOR, address=_PLACE, stands_by=True
    )
    return _ask(system.registry.AnnounceService, request)


def _advertise(system: System, number: int) -> Act:
    added = [bytes.fromhex(_DIGEST)]
    request = registry_pb2.AdvertiseArtifactsRequest(lease_id=system.lease(number), version=1, added=added)
    return _ask(system.registry.AdvertiseArtifacts, request)


def _report(system: System, number: int) -> Act:
    one = selector_pb2.Evidence(
        evidence_id=f"{system.run}-{number}",
        node_id=system.node_ids[system.place(number)],
        kind=selector_pb2.EVIDENCE_KIND_TRAINING,
    )
    one.time.GetCurrentTime()
    return _ask(system.selector.ReportEvidence, selector_pb2.ReportEvidenceRequest(evidence=[one]))


def _submit(system: System, number: int) -> Act:
    system.wait_until_ended(*system.submitted[-1:])
    return system.submit


def _cancel(system: System, number: int) -> Act:
    system.submit()
    return partial(system.wait_until_ended, system.submitted[-1])


def _resume(system: System, number: int) -> Act:
    system.wait_until_ended(*system.submitted[-1:], system.cut_off_id)
    return _ask(system.trainer.ResumeJob, trainer_pb2.ResumeJobRequest(job_id=system.cut_off_id))


def _record_traffic(system: System, number: int) -> Act:
    request = trainer_pb2.RecordJobTrafficRequest(job_id=system.job_id, traffic=trainer_pb2.NetworkTraffic())
    return _ask(system.trainer.RecordJobTraffic, request)


def _watch_job(system: System, number: int) -> Act:
    watch = _ask(system.trainer.WatchJob, trainer_pb2.WatchJobRequest(job_id=system.job_id))
    return lambda: list(watch())


_r, _s, _t = registry_pb2, selector_pb2, trainer_pb2
# Those that change nothing come first, so that no other slows them.
CALLS: dict[str, Callable[[System, int], Act]] = {
    "GetNode": lambda o, n: _ask(o.registry.GetNode, _r.GetNodeRequest(node=o.name(n))),
    "ListNodes": lambda o, n: _ask(o.registry.ListNodes, _r.ListNodesRequest()),
    "WatchNodes": lambda o, n: _first(o.registry.WatchNodes, _r.WatchNodesRequest()),
    "ListSessions": lambda o, n: _ask(
        o.registry.ListSessions, _r.ListSessionsRequest(node=o.name(n), page_size=SESSIONS)
    ),
    "ListInterruptions": lambda o, n: _ask(
        o.registry.ListInterruptions, _r.ListInterruptionsRequest(page_size=INTERRUPTIONS)
    ),
    "ListServices": lambda o, n: _ask(o.registry.ListServices, _r.ListServicesRequest()),
    "SelectNodes": lambda o, n: _ask(o.selector.SelectNodes, _s.SelectNodesRequest(request_budget=10)),
    "GetBelief": lambda o, n: _ask(o.selector.GetBelief, _s.GetBeliefRequest(node=o.name(n))),
    "ListBeliefs": lambda o, n: _ask(o.selector.ListBeliefs, _s.ListBeliefsRequest()),
    "ListBeliefHistory": lambda o, n: _ask(
        o.selector.ListBeliefHistory, _s.ListBeliefHistoryRequest(node=o.name(n), page_size=UPDATES)
    ),
    "ListPolicies": lambda o, n: _ask(o.selector.ListPolicies, _s.ListPoliciesRequest()),
    "GetJob": lambda o, n: _ask(o.trainer.GetJob, _t.GetJobRequest(job_id=o.job_id)),
    "ListJobs": lambda o, n: _ask(o.trainer.ListJobs, _t.ListJobsRequest()),
    "ListModels": lambda o, n: _ask(o.trainer.ListModels, _t.ListModelsRequest()),
    "WatchJob": _watch_job,
    "RecordJobTraffic": _record_traffic,
    "ReportEvidence": _report,
    "SubmitJob": _submit,
    "CancelJob": _cancel,
    "ResumeJob": _resume,
    "AnnounceService": _announce,
    "Drain": _drain,
    "AdvertiseArtifacts": _advertise,
    "ListHolders": lambda o, n: _ask(o.registry.ListHolders, _r.ListHoldersRequest(digest=_DIGEST)),
    "Register": _register,
    "Heartbeat": _heartbeat,
    "Deregister": _deregister,
    "RemoveNode": _remove_node,
}
