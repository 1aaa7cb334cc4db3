"""Which role may call what: the one table, asked for every call where certificates are required.

What isn't in it is refused. What a role may call can be limited further by whom the caller speaks for: a node
registers as itself, a worker has the session of its own job; the servicers see to that.
"""

from collections.abc import Collection

from peerloom.errors import PermissionDeniedError
from peerloom.kit.principal import Principal, Role

_PEOPLE = frozenset({Role.OPERATOR, Role.USER})
_LOOKING = _PEOPLE | {Role.DASHBOARD}
_COORDINATING = frozenset({Role.SELECTOR, Role.TRAINER})
_KNOWING = _LOOKING | _COORDINATING | {Role.NODE, Role.INFERENCE}
_MOVING = _PEOPLE | {Role.TRAINER, Role.NODE, Role.INFERENCE}
_NODE, _TRAINER, _WORKER = frozenset({Role.NODE}), frozenset({Role.TRAINER}), frozenset({Role.WORKER})
_EVERYBODY = frozenset(Role)


def _methods(service: str, **roles: frozenset[Role]) -> dict[str, frozenset[Role]]:
    return {f"/peerloom.v1.{service}/{method}": granted for method, granted in roles.items()}


MAY_CALL: dict[str, frozenset[Role]] = {
    # Before anybody is known: its own port serves nothing else.
    **_methods("JoinService", Join=frozenset()),
    **_methods(
        "AdmissionService",
        CreateToken=_PEOPLE,
        ListAdmitted=_PEOPLE,
        Revoke=_PEOPLE,
        RotateAuthority=frozenset({Role.OPERATOR}),
        Renew=_EVERYBODY - {Role.WORKER, Role.INFERENCE},
        CertifyChild=_NODE,
        WatchTrust=_EVERYBODY - {Role.WORKER},
    ),
    **_methods(
        "RegistryService",
        Register=_NODE,
        CheckReachability=_NODE,
        Heartbeat=_NODE,
        Deregister=_NODE,
        AdvertiseArtifacts=_NODE,
        Drain=_PEOPLE,
        RemoveNode=_PEOPLE,
        GetNode=_KNOWING,
        ListNodes=_KNOWING,
        WatchNodes=_LOOKING | {Role.SELECTOR, Role.TRAINER},
        ListSessions=_LOOKING,
        ListInterruptions=_LOOKING,
        AnnounceService=_COORDINATING,
        ListHolders=_KNOWING,
        ListServices=_KNOWING,
    ),
    **_methods(
        "SelectorService",
        SelectNodes=_PEOPLE | _TRAINER,
        GetBelief=_LOOKING | _TRAINER,
        ListBeliefs=_LOOKING | _TRAINER | {Role.INFERENCE},
        ListBeliefHistory=_LOOKING,
        ReportEvidence=_PEOPLE | {Role.TRAINER, Role.NODE, Role.INFERENCE},
        ListPolicies=_LOOKING | _TRAINER,
    ),
    **_methods(
        "TrainerService",
        SubmitJob=_PEOPLE,
        ResumeJob=_PEOPLE,
        CancelJob=_PEOPLE,
        RecordJobTraffic=_PEOPLE,
        GetJob=_LOOKING,
        ListJobs=_LOOKING,
        WatchJob=_LOOKING,
        GetJobLogs=_LOOKING,
        ListModels=_LOOKING,
        WorkerSession=_WORKER,
    ),
    **_methods(
        "NodeAgentService",
        Handshake=_KNOWING | {Role.REGISTRY},
        RequestWork=_TRAINER,
        StartWorkers=_TRAINER,
        StopWorkers=_TRAINER,
        WatchWorkers=_TRAINER,
        GetWorkerLogs=_TRAINER,
        StartInference=_PEOPLE,
        ForwardPort=_WORKER,
        OpenTunnel=_NODE,
    ),
    **_methods(
        "ArtifactService",
        PutArtifact=_MOVING | _WORKER,
        GetArtifact=_MOVING | _WORKER,
        HasArtifacts=_MOVING | _WORKER,
        ListArtifacts=_LOOKING | _MOVING,
        GetManifest=_MOVING | _WORKER,
        GetChunk=_MOVING | _WORKER,
        FetchArtifact=_MOVING | _WORKER,
        PinArtifact=_PEOPLE,
        UnpinArtifact=_PEOPLE,
        RemoveArtifact=_PEOPLE,
    ),
    **_methods(
        "InferenceService",
        LoadModel=_PEOPLE,
        Infer=_PEOPLE,
        RunStage=_PEOPLE,
        PassActivations=frozenset({Role.INFERENCE}),
        GetInferenceStatus=_LOOKING | _NODE,
    ),
}


def check_is_node(caller: Principal | None, node_id: str) -> None:
    """Raises PermissionDeniedError unless the caller is this node; without certificates anybody may be."""
    if caller is not None and caller.id != node_id:
        raise PermissionDeniedError(
            f"{caller} can't speak for {node_id}: a node speaks for itself only.",
            reason="ANOTHER_NODE",
            metadata={"node_id": node_id},
        )


def check_owns(caller: Principal | None, owner: str, what: str) -> None:
    """Raises PermissionDeniedError unless the caller owns `what`, or is an operator.

    Without certificates there are no owners, and everybody may.
    """
    if caller is not None and caller.role is not Role.OPERATOR and caller.owner != owner:
        raise PermissionDeniedError(
            f"{what} belongs to {owner or 'nobody'}, not to {caller.owner}: ask its owner, or whoever runs "
            "the registry.",
            reason="FOREIGN_OWNER",
        )


def check_not_revoked(caller: Principal, revoked: Collection[str]) -> None:
    """Raises PermissionDeniedError for who was turned out: its URI, or its node's, is among `revoked`."""
    if caller.uri in revoked or (caller.node and caller.node_uri in revoked):
        raise PermissionDeniedError(
            f"The certificate of {caller} was revoked. If that was a mistake, ask for a new token.",
            reason="REVOKED",
            metadata={"principal": caller.uri},
        )


def check_may_call(method: str, caller: Principal, revoked: Collection[str] = ()) -> None:
    """Raises PermissionDeniedError unless the caller's role may call `method`, and it isn't `revoked`."""
    check_not_revoked(caller, revoked)
    roles = MAY_CALL.get(method, frozenset())
    if caller.role not in roles:
        allowed = ", ".join(sorted(roles)) or "nobody"
        raise PermissionDeniedError(
            f"{method.rpartition('/')[2]} isn't for the role {caller.role}, which {caller} has; it is for: "
            f"{allowed}.",
            reason="ROLE_MAY_NOT",
            metadata={"method": method, "role": caller.role},
        )
