"""What the simulated selector knows: the service's own columns and rules, without its database."""

import math
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from peerloom.services.selector.belief.formula import Reputation, Weights, reputation_after
from peerloom.services.selector.belief.machine_speed import WorkerSpeed, machine_speeds
from peerloom.services.selector.belief.track import Track, observe
from peerloom.services.selector.catalog.columns import NodeColumns
from peerloom.services.selector.catalog.entries import CatalogEntry, open_online_s
from peerloom.v1.registry_pb2 import NODE_STATE_ALIVE, NODE_STATE_DEAD, NODE_STATE_LEFT
from peerloom.v1.selector_pb2 import (
    EVIDENCE_KIND_INTERRUPTION,
    EVIDENCE_KIND_SESSION_ENDED,
    EVIDENCE_KIND_TRAINING,
    EvidenceKind,
)


class Book:
    """One row a name, as in the service: each fact goes through formula.reputation_after and track.observe.

    `epoch_s` stands for the time that a simulation begins at. What has changed goes into the columns when
    somebody looks at them: between two selections many nodes come and go.
    """

    epoch_s = 1_700_000_000.0

    def __init__(self, weights: Weights, half_life_s: float) -> None:
        self._columns = NodeColumns()
        self._weights = weights
        self._half_life_s = half_life_s
        self._reputations: list[Reputation] = []
        self._tracks: list[Track] = []
        self._said_gflops: list[float] = []
        self._states: list[int] = []
        self._started_s: list[float | None] = []
        self._changed: set[int] = set()

    @property
    def columns(self) -> NodeColumns:
        """Everything up to now."""
        if self._changed:
            rows = sorted(self._changed)
            where = np.array(rows, np.intp)
            starts_s = [math.nan if (at_s := self._started_s[row]) is None else at_s for row in rows]
            self._columns.set_states(where, [self._states[row] for row in rows], starts_s)
            tracks = [self._tracks[row] for row in rows]
            self._columns.set_records(where, [self._reputations[row] for row in rows], tracks)
            self._changed.clear()
        return self._columns

    @property
    def earned(self) -> Iterator[Reputation | Track]:
        """What all names have earned: values that never change."""
        return chain(self._reputations, self._tracks)

    def meet(self, address: str, slots: int, said_gflops: float) -> int:
        """A name that nobody knows; returns its row."""
        row = len(self._columns)
        entry = CatalogEntry(
            f"node-{row:012x}", f"n{row}", address, slots, NODE_STATE_LEFT, speed_gflops=said_gflops
        )
        self._columns.put(entry)
        self._reputations.append(Reputation())
        self._tracks.append(Track())
        self._said_gflops.append(said_gflops)
        self._states.append(NODE_STATE_LEFT)
        self._started_s.append(None)
        return row

    def open_session(self, row: int, now_s: float) -> None:
        """The node is alive."""
        self._started_s[row] = self.epoch_s + now_s
        self._states[row] = NODE_STATE_ALIVE
        self._changed.add(row)

    def close_session(self, row: int, now_s: float, notice: bool) -> None:
        """The node is gone, with notice or without."""
        started_s = self._started_s[row]
        assert started_s is not None, "only an open session ends"
        self._started_s[row] = None
        self._states[row] = NODE_STATE_LEFT if notice else NODE_STATE_DEAD
        kind = EVIDENCE_KIND_SESSION_ENDED if notice else EVIDENCE_KIND_INTERRUPTION
        self.note(row, kind, now_s, online_s=self.epoch_s + now_s - started_s)

    def note_trainings(self, workers: Sequence[tuple[int, float, int]], now_s: float) -> None:
        """A job ended: row, speed of one slot in the job, and slots, of each who took part to the end."""
        compared = [
            WorkerSpeed(speed, self._said_gflops[row], self._tracks[row].machine_gflops)
            for row, speed, _ in workers
        ]
        for (row, _, slots), gflops in zip(workers, machine_speeds(compared), strict=True):
            self.note(row, EVIDENCE_KIND_TRAINING, now_s, speed_gflops=gflops, slots=slots)

    def note(
        self,
        row: int,
        kind: EvidenceKind.ValueType,
        now_s: float,
        *,
        delay_s: float = 0.0,
        online_s: float = 0.0,
        transfer_bytes: float = 0.0,
        speed_gflops: float = 0.0,
        slots: int = 0,
    ) -> None:
        """One fact, as the service would count it."""
        at_s = self.epoch_s + now_s
        reputation = reputation_after(
            self._reputations[row],
            kind,
            self._weights,
            delay_s=delay_s,
            online_s=online_s,
            open_online_s=open_online_s(self._started_s[row], at_s),
        )
        track = observe(
            self._tracks[row],
            kind,
            time_s=at_s,
            half_life_s=self._half_life_s,
            delay_s=delay_s,
            online_s=online_s,
            transfer_bytes=transfer_bytes,
            speed_gflops=speed_gflops,
            slots=slots,
        )
        self._reputations[row], self._tracks[row] = reputation, track
        self._changed.add(row)
