"""A worker's own key-value store, in which the members of a generation can meet.

Each worker has one, so that none is special: a generation meets in that of its first member. Should that one
die, so does the generation, and the next one meets elsewhere. A trainer that was just started has nothing
to import before it can form one.
"""

import socket

from torch.distributed import TCPStore

from peerloom.kit.logs import get_logger

_log = get_logger()


class Rendezvous:
    """A torch TCPStore at a free port of one host; `address` is host:port, "" when it can't listen there."""

    def __init__(self, host: str) -> None:
        self.address = ""
        try:
            self._store, port = _open(host)
        except (OSError, RuntimeError) as error:
            _log.warning("store_not_opened", host=host, reason=str(error))
        else:
            self.address = f"{host}:{port}"


def host_of(agent_address: str, interface: str) -> str:
    """Where the others reach this worker: at its node's address, or, when no interface carries that (NAT), at
    that of the machine's own name, as gloo does.
    """
    if interface:
        return agent_address.rpartition(":")[0]
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return agent_address.rpartition(":")[0]


def _open(host: str) -> tuple[TCPStore, int]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host.strip("[]"), 0), family=family, backlog=1024)
    port = listener.getsockname()[1]
    # The store takes the descriptor over; by itself it would listen on every address.
    store = TCPStore(
        host.strip("[]"),
        port,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
    return store, port
