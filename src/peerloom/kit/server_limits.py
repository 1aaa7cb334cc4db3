"""What strangers may take of a server: connections, streams, calls at once, and the time to take an answer.

Each bound is far beyond what a system of a thousand nodes needs, and far below what ends a process.
"""

import resource

CALLS_AT_ONCE = 10_000  # of all methods and callers together
# gRPC holds further calls of a connection back, in their caller's process, until one of them ends.
STREAMS_OF_ONE_CONNECTION = 1024
SEND_LIMIT_S = 300.0  # for a reader of a stream to take a message: what it doesn't read is memory here
_IDLE_S = 300  # of a connection without a call; its owner connects again when there is one
_GREETING_S = 20  # to speak HTTP/2, and TLS where that is asked for
_DESCRIPTORS = 65_536


def raise_descriptor_limit() -> None:
    """Lets this process have as many open files as the system allows it, up to 65,536."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connection_limit() -> int:
    """How many connections a server takes: half of what this process may have open; files need the rest."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _DESCRIPTORS // 2 if soft == resource.RLIM_INFINITY else min(soft, _DESCRIPTORS) // 2


def server_options() -> list[tuple[str, int]]:
    """These limits in gRPC's words."""
    return [
        ("grpc.max_allowed_incoming_connections", connection_limit()),
        ("grpc.max_concurrent_streams", STREAMS_OF_ONE_CONNECTION),
        ("grpc.max_connection_idle_ms", _IDLE_S * 1000),
        ("grpc.server_handshake_timeout_ms", _GREETING_S * 1000),
    ]
