"""Whether somebody who doesn't answer in plain speaks TLS, so that an error can name the cause.

Nothing is proven by it, and nothing secret is said: a greeting, which goes to whoever listens there.
"""

import asyncio
import ssl
from contextlib import suppress

from peerloom.kit.replica_addresses import addresses_in

_LIMIT_S = 2.0


async def speaks_tls(address: str) -> bool:
    """Whether whoever listens at host:port, or at one of several, answers a greeting of TLS; within 2 s."""
    return any(await asyncio.gather(*(_speaks_tls(each) for each in addresses_in(address))))


async def _speaks_tls(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with suppress(OSError, ValueError, TimeoutError):
        async with asyncio.timeout(_LIMIT_S):
            return await _greet(host.strip("[]"), int(port))
    return False


async def _greet(host: str, port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it decides about words alone
    context.set_alpn_protocols(["h2"])
    try:
        _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLError as error:
        # An alert is TLS; what is no TLS at all has no version.
        return "ALERT" in (error.reason or "")
    writer.transport.abort()
    return True
