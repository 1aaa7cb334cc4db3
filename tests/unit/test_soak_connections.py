"""Which connections a process has, by the address of their other end."""

import os
import socket
import subprocess
import sys
from contextlib import ExitStack

from benchmarks.soak.connections import connections

HOLDER = """
import socket, sys
held = [socket.create_connection(("127.0.0.1", int(port))) for port in sys.argv[1:]]
print("connected", flush=True)
sys.stdin.read()
"""


def test_connections_are_counted_by_address_and_listeners_are_none() -> None:
    with ExitStack() as opened:
        first, second = (opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2))
        ports = [str(server.getsockname()[1]) for server in (first, first, second)]
        holder = opened.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", HOLDER, *ports],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"connected\n"
        found = connections(holder.pid)
        expected = {f"0100007F:{int(ports[0]):04X}": 2, f"0100007F:{int(ports[2]):04X}": 1}
        assert found == expected
        assert not expected.keys() & connections(os.getpid()).keys(), "it listens there"
