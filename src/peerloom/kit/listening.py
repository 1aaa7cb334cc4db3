"""Where a process may listen: checks host:port, and knows what only this machine reaches."""

import ipaddress
import re

from peerloom.errors import ConfigurationError

_LISTEN = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:\s]+):[0-9]{1,5}")


def check_listen(flag: str, listen: str) -> None:
    """Raises ConfigurationError unless the value of `flag` is host:port with a port from 0 to 65535."""
    if not _LISTEN.fullmatch(listen) or int(listen.rpartition(":")[2]) > 65535:
        raise ConfigurationError(
            f"{flag} is {listen!r}, but must be host:port with a port up to 65535 (0: a free one)."
        )


def is_loopback(listen: str) -> bool:
    """Whether only this machine reaches what listens at host:port."""
    host = listen.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
