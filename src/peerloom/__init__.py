"""Peerloom weaves the spare GPUs and CPUs of an unreliable peer-to-peer network into one machine.

    import peerloom

    with peerloom.Client() as client:
        job = client.train("digits", requests=3)
        for event in job.watch():
            print(event)
        print(job.result())

All public names are here. They are loaded when first used, so that the import costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peerloom.client.async_client import AsyncClient
    from peerloom.client.client import Client
    from peerloom.client.jobs import AsyncJobHandle, JobHandle
    from peerloom.client.types import (
        Accelerator,
        Accusation,
        Admitted,
        Artifact,
        ArtifactHolder,
        ArtifactManifest,
        AuditReport,
        AuditsOff,
        Belief,
        BeliefTerms,
        BeliefWeights,
        ClientPush,
        ClientTotals,
        Dismissal,
        EpochFinished,
        Evaluation,
        Evidence,
        ExplainedBelief,
        FederatedRound,
        GeneratedToken,
        GenerationFormed,
        GpuLoad,
        GradientsRefused,
        Inference,
        Job,
        JobEvent,
        JobResult,
        JobSpec,
        JoinToken,
        KeptArtifact,
        Ledger,
        LedgerStretch,
        LiarDismissed,
        LinkTraffic,
        LogLine,
        MachineLoad,
        MachineSpeed,
        Model,
        ModelEvaluated,
        ModelStage,
        NetworkTraffic,
        Node,
        NodeAccused,
        NodeAnswer,
        NodeAnswered,
        NodeChoice,
        NodeEvent,
        NotChosen,
        PastChoice,
        PlanChosen,
        PlanInUse,
        Policy,
        PredictedPlan,
        PredictedStage,
        PredictedStep,
        Progress,
        RawInput,
        RouteEstimate,
        ScaleShift,
        ScoreTerm,
        ScriptRun,
        ScriptSpec,
        ServiceEndpoint,
        Session,
        StageShadow,
        StalePush,
        StaleStep,
        StaleTotals,
        Standardise,
        StateChanged,
        StepCommitted,
        SyncChanged,
        SyncInUse,
        Vocabulary,
        Worker,
        WorkerLost,
    )
    from peerloom.embedded import Embedded
    from peerloom.errors import (
        AlreadyExistsError,
        CancelledError,
        ConfigurationError,
        DataLossError,
        DeadlineError,
        FailedPreconditionError,
        InternalError,
        InvalidArgumentError,
        NotFoundError,
        PeerloomError,
        PermissionDeniedError,
        ResourceExhaustedError,
        UnavailableError,
    )
    from peerloom.worker.elastic.elastic_run import elastic

    __version__: str

__all__ = [
    "Accelerator",
    "Accusation",
    "Admitted",
    "AlreadyExistsError",
    "Artifact",
    "ArtifactHolder",
    "ArtifactManifest",
    "AsyncClient",
    "AsyncJobHandle",
    "AuditReport",
    "AuditsOff",
    "Belief",
    "BeliefTerms",
    "BeliefWeights",
    "CancelledError",
    "Client",
    "ClientPush",
    "ClientTotals",
    "ConfigurationError",
    "DataLossError",
    "DeadlineError",
    "Dismissal",
    "Embedded",
    "EpochFinished",
    "Evaluation",
    "Evidence",
    "ExplainedBelief",
    "FailedPreconditionError",
    "FederatedRound",
    "GeneratedToken",
    "GenerationFormed",
    "GpuLoad",
    "GradientsRefused",
    "Inference",
    "InternalError",
    "InvalidArgumentError",
    "Job",
    "JobEvent",
    "JobHandle",
    "JobResult",
    "JobSpec",
    "JoinToken",
    "KeptArtifact",
    "Ledger",
    "LedgerStretch",
    "LiarDismissed",
    "LinkTraffic",
    "LogLine",
    "MachineLoad",
    "MachineSpeed",
    "Model",
    "ModelEvaluated",
    "ModelStage",
    "NetworkTraffic",
    "Node",
    "NodeAccused",
    "NodeAnswer",
    "NodeAnswered",
    "NodeChoice",
    "NodeEvent",
    "NotChosen",
    "NotFoundError",
    "PastChoice",
    "PeerloomError",
    "PermissionDeniedError",
    "PlanChosen",
    "PlanInUse",
    "Policy",
    "PredictedPlan",
    "PredictedStage",
    "PredictedStep",
    "Progress",
    "RawInput",
    "ResourceExhaustedError",
    "RouteEstimate",
    "ScaleShift",
    "ScoreTerm",
    "ScriptRun",
    "ScriptSpec",
    "ServiceEndpoint",
    "Session",
    "StageShadow",
    "StalePush",
    "StaleStep",
    "StaleTotals",
    "Standardise",
    "StateChanged",
    "StepCommitted",
    "SyncChanged",
    "SyncInUse",
    "UnavailableError",
    "Vocabulary",
    "Worker",
    "WorkerLost",
    "__version__",
    "elastic",
]

_HOMES = {
    "AsyncClient": "peerloom.client.async_client",
    "AsyncJobHandle": "peerloom.client.jobs",
    "Client": "peerloom.client.client",
    "Embedded": "peerloom.embedded",
    "JobHandle": "peerloom.client.jobs",
    "elastic": "peerloom.worker.elastic.elastic_run",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "__version__":
        value: Any = import_module("importlib.metadata").version("peerloom")
    else:
        home = "peerloom.errors" if name.endswith("Error") else _HOMES.get(name, "peerloom.client.types")
        value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
