"""A folder for each worker, for what it unpacks and writes; it goes when the worker has ended."""

import shutil
import tempfile
from pathlib import Path

from peerloom.artifacts.disk import disk_errors


class WorkerFolders:
    """The folders below `root`, which belong to one agent alone. Every method may block.

    Those of workers that an agent left behind when it was killed are removed when the next one begins.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.clear()

    def make(self, worker_id: str) -> Path:
        """A new, empty folder that this user alone can enter."""
        with disk_errors(self._root):
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(prefix=f"{worker_id}-", dir=self._root))

    def remove(self, folder: Path) -> None:
        """Removes a worker's folder with all that is in it; what can't be removed now is, by `clear`."""
        shutil.rmtree(folder, ignore_errors=True)

    def clear(self) -> None:
        """Removes all of them."""
        shutil.rmtree(self._root, ignore_errors=True)
