"""Identities for tests: one authority, and those that it signs."""

import time
from pathlib import Path

from peerloom.admission.certificates import Authority
from peerloom.kit.identity import FILE_NAME, Identity, write_identity
from peerloom.kit.principal import Principal, Role

LIFE_S = 3600.0


class Signer:
    """An authority that makes identities in folders of their own below `folder`."""

    def __init__(self, folder: Path, serial: int = 1) -> None:
        self._folder, self._serial = folder, serial
        self._authority = Authority.new(time.time(), serial)

    def identity(self, principal: Principal) -> Identity:
        """A fresh one, valid for an hour."""
        path = self._folder / f"{self._serial}-{principal.role}-{principal.id}-{principal.job}" / FILE_NAME
        write_identity(path, self._authority.credentials(principal, time.time(), LIFE_S))
        return Identity(path)

    def node(self, node_id: str) -> Identity:
        """A node's."""
        return self.identity(Principal(Role.NODE, node_id, "alice"))

    def worker(self, worker_id: str, job: str, node: str = "node-1") -> Identity:
        """A worker's."""
        return self.identity(Principal(Role.WORKER, worker_id, "alice", node, job))
