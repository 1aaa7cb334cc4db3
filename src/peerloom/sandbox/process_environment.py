"""Which of an agent's environment variables its workers get: what programs are set up by, and no secrets."""

from collections.abc import Mapping

# By it the agent tells the process that workers are forked from which cores its owner lends, e.g. "0,1".
CORES_VARIABLE = "PEERLOOM_WORKER_CORES"

_NAMES = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "HOME",
        "LANG",
        "LANGUAGE",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        # Where spans go to and how many; no headers and no keys, which let one in at the collector.
        "OTEL_BSP_SCHEDULE_DELAY",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "OTEL_EXPORTER_OTLP_TIMEOUT",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        "OTEL_RESOURCE_ATTRIBUTES",
        "OTEL_SDK_DISABLED",
        "OTEL_TRACES_SAMPLER",
        "OTEL_TRACES_SAMPLER_ARG",
        "PATH",
        "PEERLOOM_CHAOS",
        "PEERLOOM_TEST_RUN",
        "PEERLOOM_WORKERS_SHARE_CARDS",
        "TZ",
        "VIRTUAL_ENV",
    }
)
_PREFIXES = (
    *("CONDA_", "CUBLAS_", "CUDA_", "CUDNN_", "GLIBC_", "GLOO_", "GOMP_", "KMP_", "LC_", "MALLOC_", "MKL_"),
    *(
        "NCCL_",
        "NVIDIA_",
        "OMP_",
        "OPENBLAS_",
        "PEERLOOM_INFERENCE_",
        "PYTHON",
        "PYTORCH_",
        "SSL_CERT_",
        "TORCH",
        "XLA_",
    ),
)
# Names are looked up over TCP, by the C library: a confined process has no UDP.
_RESOLVING = {"GRPC_DNS_RESOLVER": "native", "RES_OPTIONS": "use-vc"}


def clean_environment(environment: Mapping[str, str], *, is_confined: bool) -> dict[str, str]:
    """The variables that a process which works for others gets; if it `is_confined`, names need no UDP."""
    kept = {
        name: value for name, value in environment.items() if name in _NAMES or name.startswith(_PREFIXES)
    }
    return {**kept, **(_RESOLVING if is_confined else {})}
