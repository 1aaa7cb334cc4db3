"""The nodes in memory, as columns: choosing among 100,000 takes a few operations on whole arrays."""

from collections.abc import Sequence
from itertools import chain, islice

import numpy as np
import numpy.typing as npt

from peerloom.errors import NotFoundError
from peerloom.kit.ownership import owner_of
from peerloom.services.selector.belief.formula import Reputation
from peerloom.services.selector.belief.track import TRACK, Track
from peerloom.services.selector.catalog.arrays import NumberBlock, OwnerIndex, RowIndex, doubled
from peerloom.services.selector.catalog.entries import CatalogEntry

_FIRST_CAPACITY = 1024
# The counts of a Reputation, in its order; here `all_`, since those of a Track fade.
_COUNTS = (
    "transmissions",
    "all_trainings",
    "delay_total_s",
    "ended_online_log",
    "all_interruptions",
    "all_unfinished",
)
_SAID = ("speed_gflops", "heartbeat_s", "session_start_s", "asked", "busy_until_s", "taken")
_WORK = (_COUNTS.index("all_trainings"), _COUNTS.index("all_unfinished"))
_NAMES_COMPARED = 200  # comparing is slow, and this is done while others wait
FREE = -1  # instead of a state


class NodeColumns:
    """Row i of every column is the i-th node that we met; one that was forgotten leaves its row to the next.

    Columns: `state` int8, `slots` int32, `draining` bool, `belief` float64; `labels` and `accelerators` are
    indices from a (key, value) or a kind to rows. `owner` numbers the owners from 0. `number` gives all
    others, float64, by name: those of a Track, the counts of a Reputation that don't fade (`transmissions`,
    `all_trainings`, `delay_total_s`, `ended_online_log`, `all_interruptions`, `all_unfinished`), what the
    node says of itself (`speed_gflops`, `heartbeat_s`; NaN: nothing), `session_start_s` (NaN: none is open)
    and `asked`, the number of the selection that chose it last, its place there as the fraction (NaN: none
    did). Until `busy_until_s` (NaN: never) a node probably works for earlier selections with `taken` slots;
    any fact about work ends that. `met_at` is how many selections there had been when the row got its node; a
    row that waits for one has the state FREE.
    """

    def __init__(self) -> None:
        self.node_ids: list[str] = []
        self.names: list[str] = []
        self.addresses: list[str] = []
        self.labels: RowIndex[tuple[str, str]] = RowIndex()
        self.accelerators: RowIndex[str] = RowIndex()
        self._row_of_id: dict[str, int] = {}
        self._row_of_name: dict[str, int] = {}
        self._state = np.zeros(_FIRST_CAPACITY, np.int8)
        self._slots = np.zeros(_FIRST_CAPACITY, np.int32)
        self._draining = np.zeros(_FIRST_CAPACITY, np.bool_)
        self._belief = np.zeros(_FIRST_CAPACITY, np.float64)
        self._owners = OwnerIndex()
        self._tracks, self._counts = NumberBlock(TRACK), NumberBlock(_COUNTS)
        self._said = NumberBlock(_SAID, fill=np.nan)
        self.selections = 0
        self.met_at: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.node_ids)

    @property
    def state(self) -> npt.NDArray[np.int8]:
        """Each node's state as the registry told it; UNSPECIFIED: this registry never did."""
        return self._state[: len(self)]

    @property
    def slots(self) -> npt.NDArray[np.int32]:
        """Slots that each node says it lends."""
        return self._slots[: len(self)]

    @property
    def draining(self) -> npt.NDArray[np.bool_]:
        """Which nodes take no new work."""
        return self._draining[: len(self)]

    @property
    def belief(self) -> npt.NDArray[np.float64]:
        """Each node's belief."""
        return self._belief[: len(self)]

    @property
    def owner(self) -> npt.NDArray[np.int32]:
        """The number of each node's owner."""
        return self._owners.owner[: len(self)]

    @property
    def names_of_owner(self) -> npt.NDArray[np.int32]:
        """How many nodes each owner has, by the owner's number."""
        return self._owners.names

    def number(self, name: str) -> npt.NDArray[np.float64]:
        """The column of numbers with this name; see the class."""
        block = next(block for block in (self._tracks, self._counts, self._said) if name in block)
        return block.column(name)

    @property
    def bytes(self) -> int:
        """Memory of the arrays; names, addresses and labels come on top."""
        arrays = (self._state, self._slots, self._draining, self._belief)
        blocks = (self._owners, self._tracks, self._counts, self._said)
        return (
            self._owners.bytes + sum(array.nbytes for array in arrays) + sum(block.bytes for block in blocks)
        )

    def put(self, entry: CatalogEntry) -> None:
        """Adds a node with belief 0, or changes what is known of it."""
        row = self._row_of_id.get(entry.node_id)
        if row is None:
            row = self._append(entry.node_id)
        self._owners.put(row, owner_of(entry.node_id, entry.address, entry.labels, entry.owner))
        start_s = entry.session_start_s
        self._said.set(row, "session_start_s", np.nan if start_s is None else start_s)
        self._said.set(row, "speed_gflops", entry.speed_gflops or np.nan)
        self._said.set(row, "heartbeat_s", entry.heartbeat_s or np.nan)
        self._rename(row, entry.name)
        self.addresses[row] = entry.address
        self._state[row], self._slots[row] = entry.state, entry.slots
        self._draining[row] = entry.draining
        self.labels.put(row, tuple(entry.labels.items()))
        self.accelerators.put(row, entry.accelerators)

    def set_states(
        self, rows: npt.NDArray[np.intp], states: Sequence[int], session_starts_s: Sequence[float]
    ) -> None:
        """Changes the states and open sessions' starts (NaN: none is open) of nodes that were put before."""
        self._state[rows] = states
        self._said.set(rows, "session_start_s", np.array(session_starts_s, np.float64))

    def forget(self, node_id: str) -> None:
        """Frees a node's row, if it has one."""
        row = self._row_of_id.pop(node_id, None)
        if row is None:
            return
        self._rename(row, "")
        self._owners.leave(row)
        self.labels.put(row, ())
        self.accelerators.put(row, ())
        self.node_ids[row] = self.addresses[row] = ""
        self._state[row], self._slots[row], self._draining[row], self._belief[row] = FREE, 0, False, 0.0
        for block in (self._tracks, self._counts, self._said):
            block.clear(row)
        self._free.append(row)

    def set_belief(self, node_id: str, belief: float) -> None:
        """Changes the belief of a node that was put before."""
        self._belief[self._row_of_id[node_id]] = belief

    def set_record(self, node_id: str, reputation: Reputation, track: Track) -> None:
        """Changes the reputation and the track of a node that was put before."""
        self.set_records(np.array([self._row_of_id[node_id]]), [reputation], [track])

    def set_records(
        self, rows: npt.NDArray[np.intp], reputations: Sequence[Reputation], tracks: Sequence[Track]
    ) -> None:
        """Changes the reputations and tracks of many nodes, by row, in a few operations."""
        earned = _table(reputations, len(Reputation._fields))
        self._belief[rows] = earned[:, Reputation._fields.index("belief")]
        before = sum(self._counts.column(_COUNTS[place])[rows] for place in _WORK)
        ended = rows[earned[:, _WORK].sum(axis=1) != before]
        self._said.set(ended, "busy_until_s", np.nan)
        self._counts.put_rows(rows, earned[:, : len(_COUNTS)])
        self._tracks.put_rows(rows, _table(tracks, len(TRACK)))

    def note_asked(self, rows: npt.NDArray[np.intp]) -> None:
        """Notes the rows that the selection just made has chosen, best first."""
        self._said.set(rows, "asked", self.selections + np.arange(len(rows)) / max(1, len(rows)))
        self.selections += 1

    def note_taken(self, rows: Sequence[int], slots: int, now_s: float, until_s: float) -> None:
        """The chosen, best first, probably lend `slots` slots between them from now on until then."""
        taken, busy_until_s = self._said.column("taken"), self._said.column("busy_until_s")
        for row in rows:
            held = float(taken[row]) if busy_until_s[row] > now_s else 0.0
            more = min(slots, max(0.0, float(self._slots[row]) - held))
            if more > 0:
                slots -= int(more)
                taken[row], busy_until_s[row] = held + more, until_s

    def find(self, node: str) -> int | None:
        """The row of a node by id or by name; of two that had a name, the one put last."""
        row = self._row_of_id.get(node)
        return self._row_of_name.get(node) if row is None else row

    def node_id_of(self, node: str) -> str:
        """The id of a node by id or by name. Raises NotFoundError with the nearest names."""
        row = self.find(node)
        if row is None:
            alike = (name for name in self._row_of_name if name[:1] == node[:1])
            raise NotFoundError.of_name("node", node, islice(alike, _NAMES_COMPARED))
        return self.node_ids[row]

    def _append(self, node_id: str) -> int:
        if self._free:
            row = self._free.pop()
            self._row_of_id[node_id], self.node_ids[row] = row, node_id
            self.met_at[row] = self.selections
            return row
        row = len(self)
        if row == len(self._state):
            self._grow()
        self._row_of_id[node_id] = row
        for block in (self._tracks, self._counts, self._said):
            block.append()
        self.node_ids.append(node_id)
        self.names.append("")
        self.addresses.append("")
        self.met_at.append(self.selections)
        return row

    def _grow(self) -> None:
        self._state, self._slots = doubled(self._state), doubled(self._slots)
        self._draining, self._belief = doubled(self._draining), doubled(self._belief)

    def _rename(self, row: int, name: str) -> None:
        old = self.names[row]
        if old != name and self._row_of_name.get(old) == row:
            del self._row_of_name[old]
        self.names[row] = name
        if name:
            self._row_of_name[name] = row


def _table(lines: Sequence[tuple[float, ...]], width: int) -> npt.NDArray[np.float64]:
    """The same as np.array(lines), in half the time."""
    numbers = np.fromiter(chain.from_iterable(lines), np.float64, width * len(lines))
    return numbers.reshape(len(lines), width)
