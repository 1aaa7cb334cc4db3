"""Which chunk to ask of whom next: decided from what is known now, with the reason.

A free peer is asked for the chunk that the fewest peers hold, so that what is rare is copied before its
holders go; among equally rare ones for the first, or, where others fetch too, for one at a place of our own,
so that newcomers have different chunks to give each other. When all chunks are asked for, one that is late is
taken from its sender and asked of another: never of both, for a chunk has one place to be written to. Late
is what another peer would have brought twice over; but while the sender, by its own pace, is sooner done than
another could be that begins anew, the chunk stays with it. How many chunks a peer is asked for at once
follows from what more of them brought.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

FIRST_WINDOW = 2
LARGEST_WINDOW = 4
# A wider window must bring so much more, or it goes back.
GAIN = 1.1
TRIAL_S = 0.25
TRIAL_AGE_S = 10.0
LATE_FACTOR = 2.0
LATE_LEAST_S = 1.0
LATE_UNKNOWN_S = 3.0


@dataclass(frozen=True)
class PeerPace:
    """How fast a peer is, by the number of chunks asked at once.

    `tried` maps a window to (bytes a second, when it was measured). `rate` is the newest measurement in
    bytes a second, 0 before there is one.
    """

    window: int = FIRST_WINDOW
    rate: float = 0.0
    since_s: float | None = None
    chunks: int = 0
    size_bytes: int = 0
    tried: Mapping[int, tuple[float, float]] = field(default_factory=dict)


def begun(pace: PeerPace, now_s: float) -> PeerPace:
    """The peer was idle and is asked now: measuring begins."""
    return replace(pace, since_s=now_s, chunks=0, size_bytes=0)


def received(pace: PeerPace, size_bytes: int, now_s: float) -> PeerPace:
    """A chunk came. After a quarter of a second and as many chunks as the window, the window may change."""
    if pace.since_s is None:
        return begun(pace, now_s)
    pace = replace(pace, chunks=pace.chunks + 1, size_bytes=pace.size_bytes + size_bytes)
    elapsed_s = now_s - (pace.since_s or 0.0)
    if elapsed_s <= 0 or (pace.rate and (elapsed_s < TRIAL_S or pace.chunks < pace.window)):
        return pace
    rate = pace.size_bytes / elapsed_s
    fresh = {w: one for w, one in pace.tried.items() if now_s - one[1] < TRIAL_AGE_S}
    tried = {**fresh, pace.window: (rate, now_s)}
    return begun(replace(pace, rate=rate, tried=tried, window=_next_window(pace.window, tried)), now_s)


def _next_window(window: int, tried: Mapping[int, tuple[float, float]]) -> int:
    rate = tried[window][0]
    narrower, wider = tried.get(window - 1), tried.get(window + 1)
    if narrower is not None and rate < GAIN * narrower[0]:
        return window - 1
    if window < LARGEST_WINDOW and (wider is None or wider[0] > GAIN * rate):
        return window + 1
    return window


@dataclass
class PeerState:
    """A peer as the fetcher knows it. `held` None: all chunks; `rest_until_s`: it is not asked before."""

    held: frozenset[int] | None = None
    pace: PeerPace = field(default_factory=PeerPace)
    rest_until_s: float = 0.0
    in_flight: int = 0

    def holds(self, index: int) -> bool:
        """Whether it has the chunk."""
        return self.held is None or index in self.held


@dataclass(frozen=True)
class Flight:
    """A chunk was asked of a peer at a time (monotonic seconds).

    `at_once` are the chunks that were on their way from that peer then, this one among them.
    """

    peer: str
    since_s: float
    at_once: int = 1


@dataclass
class FetchState:
    """All that a decision needs. `missing` are the chunks that haven't come, asked for or not.

    Dropped peers are no longer in `peers`. `flight_limit` bounds the chunks on their way over all peers;
    `seed` is this fetcher's own place to begin at.
    """

    chunk_count: int
    chunk_bytes: int
    missing: set[int]
    peers: dict[str, PeerState] = field(default_factory=dict)
    flights: dict[int, Flight] = field(default_factory=dict)
    flight_limit: int = 12
    seed: int = 0


@dataclass(frozen=True)
class AskPeer:
    """Ask `peer` for the chunk; `instead_of` names the one from whom it is taken, if any."""

    peer: str
    index: int
    reason: str
    instead_of: str = ""


@dataclass(frozen=True)
class WaitLonger:
    """Nothing to ask now; look again when something comes, and at `until_s` at the latest."""

    until_s: float | None
    reason: str


@dataclass(frozen=True)
class AllHere:
    """All chunks have come."""

    reason: str = "all chunks are here"


@dataclass(frozen=True)
class NoPeers:
    """Nobody is left to ask, and nothing is on its way."""

    reason: str


Step = AskPeer | WaitLonger | AllHere | NoPeers


def next_step(state: FetchState, now_s: float) -> Step:
    """What to do next, at `now_s` (monotonic seconds)."""
    if not state.missing:
        return AllHere()
    if not state.peers:
        return NoPeers(f"nobody is left who could send the {len(state.missing):,} chunks that are missing")
    if len(state.flights) >= state.flight_limit:
        return WaitLonger(None, f"{len(state.flights)} chunks are on their way, the most at once")
    free = [name for name, peer in state.peers.items() if _is_free(peer, now_s)]
    free.sort(key=lambda name: (_eagerness(state.peers[name]), name))
    unasked = [index for index in state.missing if index not in state.flights]
    for name in free:
        found = _rarest(state, state.peers[name], unasked)
        if found is not None:
            index, holders = found
            return AskPeer(name, index, f"{holders} of {len(state.peers)} peers hold it, the fewest")
    return _second_ask(state, free, now_s)


def _is_free(peer: PeerState, now_s: float) -> bool:
    return now_s >= peer.rest_until_s and peer.in_flight < peer.pace.window


def _eagerness(peer: PeerState) -> float:
    """Smaller is sooner: when one more chunk would be here, in seconds a byte; unknown peers first."""
    return (peer.in_flight + 1) / peer.pace.rate if peer.pace.rate else float(peer.in_flight) / 1e12


def _rarest(state: FetchState, peer: PeerState, unasked: list[int]) -> tuple[int, int] | None:
    partial = [one.held for one in state.peers.values() if one.held is not None]
    whole = len(state.peers) - len(partial)
    offset = state.seed % state.chunk_count if partial else 0
    best: tuple[int, int, int] | None = None
    for index in unasked:
        if peer.holds(index):
            holders = whole + sum(index in held for held in partial)
            key = (holders, (index - offset) % state.chunk_count, index)
            best = key if best is None else min(best, key)
    return None if best is None else (best[2], best[0])


def _second_ask(state: FetchState, free: list[str], now_s: float) -> Step:
    """For a chunk that is late; else how long to wait."""
    soonest: float | None = None
    for index, flight in sorted(state.flights.items(), key=lambda item: (item[1].since_s, item[0])):
        for name in free:
            peer = state.peers[name]
            if flight.peer == name or not peer.holds(index):
                continue
            sender = state.peers.get(flight.peer)
            late_s = flight.since_s + _patience_s(flight, sender, peer, state.chunk_bytes)
            if now_s >= late_s:
                reason = f"{flight.peer} has been sending it for {now_s - flight.since_s:.1f} s"
                return AskPeer(name, index, reason, instead_of=flight.peer)
            soonest = late_s if soonest is None else min(soonest, late_s)
    rests = [peer.rest_until_s for peer in state.peers.values() if peer.rest_until_s > now_s]
    times = [*rests, *([] if soonest is None else [soonest])]
    return WaitLonger(min(times, default=None), "all that can be asked for is on its way")


def _patience_s(flight: Flight, sender: PeerState | None, other: PeerState, chunk_bytes: int) -> float:
    """How long after it was asked for a chunk is taken from its `sender` and asked of the `other` peer."""
    if not other.pace.rate:
        return LATE_UNKNOWN_S
    other_s = chunk_bytes * (other.in_flight + 1) / other.pace.rate
    patience_s = LATE_LEAST_S + LATE_FACTOR * other_s
    if sender is None or not sender.pace.rate:
        return patience_s
    sender_s = chunk_bytes * max(flight.at_once, sender.in_flight) / sender.pace.rate
    if sender_s - patience_s > other_s:  # even then the other one would be here first
        return patience_s
    return max(patience_s, LATE_LEAST_S + LATE_FACTOR * sender_s)
