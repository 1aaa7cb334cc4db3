"""The thesis's known flaws as figures, for its formula and for survival; and what new or many names gain.

Each figure is computed from the selector's own rules and policies, without chance.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from benchmarks.intervals import EXACT
from benchmarks.measure import Goal, Measurement, measurement
from peerloom.services.selector.belief.formula import Reputation, Weights, update
from peerloom.services.selector.belief.track import HALF_LIFE_S, Track, observe
from peerloom.services.selector.catalog.columns import NodeColumns
from peerloom.services.selector.catalog.entries import CatalogEntry
from peerloom.services.selector.choosing.choice import candidates_of, choose
from peerloom.services.selector.policies import find_policy
from peerloom.services.selector.policies.interface import SelectionRequest
from peerloom.v1.registry_pb2 import NODE_STATE_ALIVE, NODE_STATE_DEAD
from peerloom.v1.selector_pb2 import (
    EVIDENCE_KIND_INTERRUPTION,
    EVIDENCE_KIND_SESSION_ENDED,
    EVIDENCE_KIND_TRAINING,
    EVIDENCE_KIND_UNFINISHED,
    EvidenceKind,
)

DAY_S = 86_400.0
T0 = 1_700_000_000.0


@dataclass
class Life:
    """One node's life, told fact by fact; `now_s` moves with it."""

    address: str
    slots: int = 1
    now_s: float = T0
    reputation: Reputation = field(default_factory=Reputation)
    track: Track = field(default_factory=Track)

    def session(self, length_s: float, pause_s: float, *, notice: bool) -> "Life":
        """Online for so long, then gone for so long."""
        self.now_s += length_s
        kind = EVIDENCE_KIND_SESSION_ENDED if notice else EVIDENCE_KIND_INTERRUPTION
        self._note(kind, online_s=length_s)
        self.now_s += pause_s
        return self

    def works(self, good: int, bad: int = 0, gflops: float = 100.0, slots: int = 1) -> "Life":
        """Trainings finished at this speed with so many slots, and requests refused."""
        for _ in range(good):
            self._note(EVIDENCE_KIND_TRAINING, speed_gflops=gflops, slots=slots)
        for _ in range(bad):
            self._note(EVIDENCE_KIND_UNFINISHED)
        return self

    def _note(
        self,
        kind: EvidenceKind.ValueType,
        *,
        online_s: float = 0.0,
        speed_gflops: float = 0.0,
        slots: int = 0,
    ) -> None:
        self.reputation, _ = update(self.reputation, kind, Weights(), online_s=online_s)
        self.track = observe(
            self.track,
            kind,
            time_s=self.now_s,
            half_life_s=HALF_LIFE_S,
            online_s=online_s,
            speed_gflops=speed_gflops,
            slots=slots,
        )


def columns_of(lives: Sequence[Life]) -> NodeColumns:
    """All of them alive."""
    columns = NodeColumns()
    for number, life in enumerate(lives):
        node_id = f"node-{number:012x}"
        columns.put(CatalogEntry(node_id, f"n{number}", life.address, life.slots, NODE_STATE_ALIVE))
        columns.set_record(node_id, life.reputation, life.track)
    return columns


def score(policy: str, life: Life, now_s: float, others: Sequence[Life] = ()) -> float:
    """The policy's score of a node at a time; survival's without a promise that trials make."""
    columns = columns_of([life, *others])
    seen = candidates_of(columns, np.arange(len(columns)), now_s, HALF_LIFE_S)
    return find_policy(policy).explain(seen, SelectionRequest(budget=1), 0)[-1].value


def flapper() -> Life:
    """30 seconds on, 30 seconds off, for a day, and as much work done as the steady one."""
    life = Life("10.0.0.1:1")
    for _ in range(1440):
        life.session(30.0, 30.0, notice=False)
    return life.works(5)


def steady() -> Life:
    """A day in one session that ended without notice."""
    return Life("10.0.0.2:1").session(DAY_S, 0.0, notice=False).works(5)


def visits(count: int, length_s: float) -> Life:
    """So many sessions with a goodbye, and a training."""
    life = Life("10.0.0.3:1")
    for _ in range(count):
        life.session(length_s, 0.0, notice=True)
    return life.works(1)


def share(columns: NodeColumns, policy: str, rows: set[int], rounds: int, budget: int = 4) -> float:
    """The part of all requests that goes to these rows."""
    rng, chooser = np.random.default_rng(1), find_policy(policy)
    mine = asked = 0
    for _ in range(rounds):
        chosen = choose(columns, SelectionRequest(budget=budget), chooser, rng, now_s=T0 + DAY_S).rows
        columns.note_asked(np.array(chosen, np.intp))
        mine += sum(row in rows for row in chosen)
        asked += len(chosen)
    return mine / asked


def crowd(count: int) -> list[Life]:
    """Proven nodes, each of its own owner, of different speeds."""
    return [
        Life(f"10.1.{number >> 8}.{number & 255}:1")
        .session(DAY_S, 0.0, notice=True)
        .works(4, gflops=50.0 + number)
        for number in range(count)
    ]


def whitewashed(policy: str, rounds: int = 2000) -> tuple[float, float]:
    """The share of a node that refuses nine of ten requests, under its old name and under a new one."""
    bad = Life("10.9.9.9:1").session(DAY_S, 0.0, notice=True).works(1, 9)
    stayed = columns_of([*crowd(40), bad])
    renamed = columns_of([*crowd(40), bad, Life("10.9.9.9:1")])
    renamed.set_states(np.array([40]), [NODE_STATE_DEAD], [math.nan])
    return share(stayed, policy, {40}, rounds), share(renamed, policy, {41}, rounds)


def sybils(policy: str, names: int, rounds: int = 400) -> float:
    """The share of one owner's newcomers among 40 proven nodes and 40 other newcomers, who never answer."""
    newcomers = [Life(f"10.2.0.{number}:1") for number in range(40)]
    theirs = [Life("10.9.9.9:1") for _ in range(names)]
    columns = columns_of([*crowd(40), *newcomers, *theirs])
    return share(columns, policy, set(range(80, 80 + names)), rounds)


def rounds_until_tried(policy: str, newcomers: int, limit: int = 5000) -> int:
    """How many rounds until each of so many newcomers among 40 proven nodes was asked; `limit` if never."""
    columns = columns_of([*crowd(40), *(Life(f"10.2.0.{number}:1") for number in range(newcomers))])
    rng, chooser, waiting = np.random.default_rng(1), find_policy(policy), set(range(40, 40 + newcomers))
    for count in range(1, limit + 1):
        chosen = choose(columns, SelectionRequest(budget=4), chooser, rng, now_s=T0 + DAY_S).rows
        columns.note_asked(np.array(chosen, np.intp))
        waiting.difference_update(chosen)
        if not waiting:
            return count
    return limit


def flaw_figures() -> list[Measurement]:
    """Every figure for survival, beside the thesis's."""
    exact = partial(measurement, statistic=EXACT)

    def beside(name: str, unit: str, of: Callable[[str], float], goal: Goal | None) -> Measurement:
        ours, theirs = [of("survival")], [of("thesis")]
        return exact(name, unit, ours, goal=goal, rival="thesis", rival_samples=theirs)

    end_s = T0 + DAY_S
    year_s = end_s + 365 * DAY_S
    old, new_ = Life("10.0.0.4:1").works(200), Life("10.0.0.5:1", now_s=year_s).works(20)
    weak = Life("10.0.0.6:1").works(5, gflops=10.0)
    strong = Life("10.0.0.7:1", 4).works(5, gflops=100.0, slots=4)
    half, one = Goal(0.5, at_least=False), Goal(1.0, at_least=False)
    bound = Goal(1e-9, at_least=False)
    before = {policy: whitewashed(policy) for policy in ("survival", "thesis")}
    return [
        beside(
            "score of a 30-second flapper, of a steady node's",
            "part",
            lambda p: score(p, flapper(), end_s) / score(p, steady(), end_s),
            half,
        ),
        beside(
            "score after ten 10-second visits, of one 100-second visit's",
            "part",
            lambda p: score(p, visits(10, 10.0), end_s) / score(p, visits(1, 100.0), end_s),
            one,
        ),
        beside(
            "score of 200 trainings a year ago, of 20 now's",
            "part",
            lambda p: score(p, old, year_s) / score(p, new_, year_s),
            one,
        ),
        beside(
            "score of a weak slot, of four strong ones'",
            "part",
            lambda p: score(p, weak, end_s, [strong]) / score(p, strong, end_s, [weak]),
            half,
        ),
        beside(
            "rounds until each of 20 newcomers among 40 proven nodes was tried (5,000: never)",
            "rounds",
            lambda p: float(rounds_until_tried(p, 20)),
            Goal((2 * 20 / 4 + 1) * 20, at_least=False),
        ),
        beside(
            "share of requests that a refusing node gains by a new name",
            "part",
            lambda p: before[p][1] - before[p][0],
            bound,
        ),
        exact(
            "share of 100 names of one owner less that of one name, survival",
            "part",
            [sybils("survival", 100) - sybils("survival", 1)],
            goal=bound,
        ),
    ]
