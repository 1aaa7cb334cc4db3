"""Certificates of the processes that an agent starts: each acts for the node, a worker for one job only."""

import asyncio
from pathlib import Path

from peerloom.admission.joining import certify
from peerloom.artifacts.disk import disk_errors
from peerloom.errors import PeerloomError
from peerloom.kit.clock import Clock
from peerloom.kit.dialing import Dialer
from peerloom.kit.identity import FILE_NAME, Credentials, write_identity
from peerloom.kit.logs import get_logger
from peerloom.kit.principal import Role
from peerloom.v1.admission_pb2 import CertifyChildRequest

_LOOK_S = 1.0
_log = get_logger()


class ChildIdentities:
    """Asks the registry's door for them; where the dialer has no identity all is plain, and they are "".

    What a worker has is renewed here: it may not do so itself, since it must end with its job.
    """

    def __init__(self, dialer: Dialer, registry: str, clock: Clock) -> None:
        self._identity, self._clock = dialer.identity, clock
        self._door = dialer.admission(registry)
        self._workers: dict[Path, tuple[str, str, Credentials]] = {}

    async def of_worker(self, folder: Path, worker_id: str, job_id: str) -> str:
        """The PEM file for a worker, in its folder; "" where all is plain. Raises a PeerloomError."""
        if self._identity is None:
            return ""
        path = folder / FILE_NAME
        self._workers[path] = (worker_id, job_id, await self._make(path, Role.WORKER, worker_id, job_id))
        return str(path)

    async def of_inference(self, folder: Path) -> str:
        """The PEM file for the inference server, in its folder; "" where all is plain."""
        if self._identity is None:
            return ""
        path = folder / FILE_NAME
        await self._make(path, Role.INFERENCE, self._identity.principal.id, "")
        return str(path)

    async def close(self) -> None:
        """Closes the channel to the door."""
        await self._door.close()

    async def keep(self) -> None:
        """Renews the workers' as long as they are there, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self._renew_due()
            except PeerloomError as error:
                _log.warning("worker_certificate_not_renewed", reason=error.message)

    async def _renew_due(self) -> None:
        now_s = self._clock.wall_s()
        for path, (worker_id, job_id, credentials) in list(self._workers.items()):
            if not path.parent.exists():
                del self._workers[path]
            elif now_s >= credentials.renewal_s:
                await self.of_worker(path.parent, worker_id, job_id)

    async def _make(self, path: Path, role: Role, id_: str, job_id: str) -> Credentials:
        async def ask(request: bytes) -> tuple[bytes, bytes]:
            asked = CertifyChildRequest(certificate_request=request, role=role, id=id_, job_id=job_id)
            answer = await self._door.call(self._door.stub.CertifyChild, asked)
            return answer.certificate, answer.authorities

        credentials = await certify(ask)
        with disk_errors(path.parent):
            write_identity(path, credentials)
        return credentials
