"""Opens the metrics port of a process that was asked for one; without, nothing of it is even imported."""

from typing import TYPE_CHECKING

from peerloom.errors import ConfigurationError

if TYPE_CHECKING:
    from peerloom.kit.metrics_server import MetricsServer


def open_metrics(listen: str) -> "MetricsServer":
    """The metrics server at host:port.

    Raises ConfigurationError without prometheus_client, and what `MetricsServer` raises.
    """
    try:
        from peerloom.kit.metrics_server import MetricsServer
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        raise ConfigurationError(
            "--metrics needs the library prometheus_client, which isn't installed here. Install it with: "
            "pip install 'peerloom[metrics]'"
        ) from error
    return MetricsServer(listen)
