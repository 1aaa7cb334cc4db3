"""Keeps an identity fresh: renewed at two thirds of its life, and whenever other authorities count."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress

from peerloom.admission.joining import certify, come_back
from peerloom.errors import PeerloomError
from peerloom.kit.backoff import Backoff
from peerloom.kit.clock import Clock
from peerloom.kit.dialing import AdmissionPeer
from peerloom.kit.identity import Identity
from peerloom.v1.admission_pb2 import RenewRequest, WatchTrustRequest

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0


class Renewal:
    """Follows what the registry's door says of trust, and renews `identity` there.

    `tell` is called with what happened and its fields; a user's own process is told nothing.
    """

    def __init__(
        self,
        identity: Identity,
        door: AdmissionPeer,
        clock: Clock,
        tell: Callable[..., object] = lambda event, **fields: None,
    ) -> None:
        self._identity, self._door, self._clock, self._tell = identity, door, clock, tell
        self._backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self._is_stale = asyncio.Event()

    async def keep(self) -> None:
        """Follows and renews until cancelled, over restarts of the registry."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._renew_forever())

    async def _renew_forever(self) -> None:
        while True:
            left_s = self._identity.current.renewal_s - self._clock.wall_s()
            # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with the event.
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, left_s)):
                    await self._is_stale.wait()
            self._is_stale.clear()
            try:
                if self._clock.wall_s() < self._identity.current.ends_s:
                    await renew(self._identity, self._door)
                else:  # this machine slept, or the registry was away
                    await come_back(self._identity)
                self._backoff.succeeded()
                self._tell("certificate_renewed", principal=self._identity.principal.uri)
            except PeerloomError as error:
                ends_s = self._identity.current.ends_s - self._clock.wall_s()
                self._tell("certificate_not_renewed", reason=error.message, ends_in_s=round(ends_s))
                self._is_stale.set()
                await asyncio.sleep(self._backoff.next_pause_s())
            except OSError as error:  # it is renewed, in memory
                self._tell("identity_not_kept", path=str(self._identity.path), reason=str(error))

    async def _follow(self) -> None:
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            try:
                request = WatchTrustRequest()
                async with aclosing(self._door.stream(self._door.stub.WatchTrust, request)) as told:
                    async for trust in told:
                        backoff.succeeded()
                        self._identity.revoked = frozenset(trust.revoked)
                        if trust.authorities != self._identity.current.authorities:
                            self._is_stale.set()
            except PeerloomError as error:
                self._tell("trust_not_followed", reason=error.message)
            await asyncio.sleep(backoff.next_pause_s())


async def renew(identity: Identity, door: AdmissionPeer) -> None:
    """Puts a fresh key and certificate in place. Raises a PeerloomError, or OSError for a full disk."""

    async def ask(request: bytes) -> tuple[bytes, bytes]:
        answer = await door.call(door.stub.Renew, RenewRequest(certificate_request=request))
        return answer.certificate, answer.authorities

    identity.renew(await certify(ask))
