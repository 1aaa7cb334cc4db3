"""The meshes of several ranks in one process, over real sockets."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from peerloom.v1.trainer_pb2 import StoreEntry
from peerloom.worker.group.relay.relay import RelayedGeneration
from peerloom.worker.mesh.connecting import MeshMeeting
from peerloom.worker.mesh.mesh import Mesh
from peerloom.worker.store_entries import StoreEntries

LIMIT_S = 60.0
GENERATION = 7


class Ranks:
    """The members of a generation, whose entries all hear; each has a meeting."""

    def __init__(self, ranks: int, relayed: list[RelayedGeneration] | None = None) -> None:
        self.entries = [StoreEntries(GENERATION, self._tell) for _ in range(ranks)]
        ways = relayed or [None] * ranks
        self.meetings = [
            MeshMeeting(rank, ranks, self.entries[rank], LIMIT_S, "127.0.0.1", ways[rank])
            for rank in range(ranks)
        ]
        self.meshes = [Mesh(meeting, LIMIT_S) for meeting in self.meetings]

    def _tell(self, entry: StoreEntry) -> None:
        for entries in self.entries:
            entries.heard(entry)

    def connect(self, among: int) -> list[Mesh]:
        """The meshes of the first ranks, connected to all."""
        for mesh in self.meshes[:among]:
            mesh.begin_meeting()
        with ThreadPoolExecutor(among) as pool:
            list(pool.map(Mesh.connect, self.meshes[:among]))
        return self.meshes[:among]


def connected(opened: ExitStack, ranks: int) -> list[Mesh]:
    """The meshes of so many ranks, connected; `opened` closes them."""
    meshes = Ranks(ranks).connect(ranks)
    for mesh in meshes:
        opened.callback(mesh.close)
    return meshes
