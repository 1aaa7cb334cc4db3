"""What strangers may take of a server: connections, streams, calls at once, and the time to take an answer.

Each bound is beyond what a system of ten thousand nodes needs, each of which holds a connection and a stream,
and below what ends a process.
"""

import resource

_CALLS_BESIDE_STREAMS = 10_000  # of all methods and callers together
# gRPC holds further calls of a connection back, in their caller's process, until one of them ends.
STREAMS_OF_ONE_CONNECTION = 1024
SEND_LIMIT_S = 300.0  # for a reader of a stream to take a message: what it doesn't read is memory here
_IDLE_S = 300  # of a connection without a call; its owner connects again when there is one
_GREETING_S = 20  # to speak HTTP/2, and TLS where that is asked for
_DESCRIPTORS, _OTHER_FILES = 65_536, 4_096


def raise_descriptor_limit() -> None:
    """Lets this process have as many open files as the system allows it, up to 65,536."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connection_limit() -> int:
    """How many connections a server takes: all that this process may have open, but what files need.

    That is half of it, and at most 4,096.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _DESCRIPTORS if soft == resource.RLIM_INFINITY else min(soft, _DESCRIPTORS)
    return allowed - min(allowed // 2, _OTHER_FILES)


def calls_at_once() -> int:
    """How many calls a server has under way: a stream that stays open for each connection, and 10,000 more.

    A node's stream of heartbeats is a call that never ends: with a bound below the number of nodes the
    registry would refuse all else.
    """
    return connection_limit() + _CALLS_BESIDE_STREAMS


def server_options() -> list[tuple[str, int]]:
    """These limits in gRPC's words."""
    return [
        ("grpc.max_allowed_incoming_connections", connection_limit()),
        ("grpc.max_concurrent_streams", STREAMS_OF_ONE_CONNECTION),
        # Of calls that wait to be begun gRPC ends some from 1,000 on and all beyond 3,000, with CANCELLED: of
        # ten thousand agents that come at once most would be sent away again and again, and never told why.
        ("grpc.server.max_pending_requests", calls_at_once()),
        ("grpc.server.max_pending_requests_hard_limit", calls_at_once()),
        ("grpc.max_connection_idle_ms", _IDLE_S * 1000),
        ("grpc.server_handshake_timeout_ms", _GREETING_S * 1000),
    ]
