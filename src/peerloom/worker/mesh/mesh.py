"""Exchanges of messages between the workers of a generation.

Each exchange has a number, alike on all ranks, so they may begin in another order on each, and what comes
before its exchange has begun waits. One thread waits for all connections: it takes what comes, sends on what
the kernel did not take at once, and completes the exchanges' futures.
"""

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector

import torch

from peerloom.worker.group.waits import TensorFuture
from peerloom.worker.mesh.connecting import MeshMeeting
from peerloom.worker.mesh.early import EarlyMessages
from peerloom.worker.mesh.frames import MARK, Tag
from peerloom.worker.mesh.mesh_link import UNPACED, MeshLink, OutgoingMessage, watch
from peerloom.worker.mesh.open_exchange import OpenExchange, content_of

DEADLINE_LOOK_S = 0.5  # limits are seconds
FIRST_BESIDE = 1 << 63  # of the numbers that another thread may take meanwhile
_DONE = torch.empty(0)


class Mesh:
    """One generation's connections, made by `meeting`. Any thread may call any method.

    A peer that is lost ends the exchanges that need it, and a break ends all. `limit_s` is how long an
    exchange may take that begins from now on.
    """

    def __init__(self, meeting: MeshMeeting, limit_s: float) -> None:
        self.limit_s = limit_s
        self._meeting = meeting
        self._links: dict[int, MeshLink] = {}
        self._lock = threading.Lock()
        self._open: dict[int, OpenExchange] = {}
        self._early = EarlyMessages()
        self._lost: dict[int, str] = {}
        self._numbers = itertools.count(1), itertools.count(FIRST_BESIDE)
        self._reason = ""
        self._is_closed = False
        self._changed: set[MeshLink] = set()  # that the thread has to look at
        self._waker = -1

    def begin_meeting(self) -> None:
        """Begins to connect. Raises RuntimeError where nobody could reach this worker."""
        self._meeting.begin()

    def connect(self) -> None:
        """Waits until all are connected. Raises RuntimeError when one doesn't come, or on a break."""
        connections = self._meeting.connect()
        try:
            links = {rank: MeshLink(rank, connection) for rank, connection in connections.items()}
        except OSError as error:
            for connection in connections.values():
                connection.socket.close()
            raise RuntimeError(f"{MARK}: a peer is gone: {error}") from error
        with self._lock:
            failure = self._reason or ("the group was left" if self._is_closed else "")
            if not failure:
                self._links = links
                woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
                threading.Thread(target=self._run, args=(woken,), name="mesh", daemon=True).start()
                return
        for link in links.values():
            link.free()
        raise RuntimeError(failure)

    def next_sequence(self, is_beside: bool = False) -> int:
        """The number of an exchange; all ranks take them in the same order, and those beside in another."""
        return next(self._numbers[is_beside])

    def begin(
        self,
        sequence: int,
        outgoing: Mapping[int, torch.Tensor],
        incoming: Mapping[int, Mapping[int, torch.Tensor]],
        thens: Sequence[Callable[[], None]] = (),
        urgency: int = 0,
        patience_s: float = 0.0,
    ) -> TensorFuture:
        """Sends each rank its tensor in phase 0, and awaits those of some ranks in each phase.

        All are contiguous and on the processor, and nobody may change them before the exchange is over. More
        urgent messages overtake others that don't travel yet. The first of `thens`, which sends what this
        rank owes in phase 1, is called once, in any thread, when all of phase 0 has come, the second when
        phase 1 has come too, and so on; what they raise ends the exchange. The future is complete, with a
        tensor or the reason why there is none, when all has come, all `thens` have ended, and the kernel has
        all that was sent. It may take `patience_s` longer.
        """
        deadline_s = time.monotonic() + self.limit_s + patience_s
        exchange = OpenExchange(sequence, outgoing, incoming, thens, deadline_s)
        wrong, waiting = dict[int, str](), set[int]()
        with self._lock:
            failure = self._reason or next(
                (why for rank, why in self._lost.items() if exchange.needs(rank)), ""
            )
            if not failure:
                self._open[sequence] = exchange
                wrong, waiting = self._take_early(exchange), self._early.take_waiting()
        if failure:
            exchange.future.set_result(failure)
            return exchange.future
        for rank, reason in wrong.items():
            self._lose(self._links[rank], reason)
        self._look_at(self._links[rank] for rank in waiting)
        self._push(Tag(sequence, 0), outgoing, urgency)
        self._go_on(exchange)
        return exchange.future

    def send(self, tag: Tag, outgoing: Mapping[int, torch.Tensor], urgency: int = 0) -> None:
        """Sends each rank its tensor in a later phase: for `thens`."""
        with self._lock:
            exchange = self._open.get(tag.sequence)
            if exchange is None:
                return  # it has failed
            exchange.note_sending(outgoing)
        self._push(tag, outgoing, urgency)

    def _push(self, tag: Tag, outgoing: Mapping[int, torch.Tensor], urgency: int) -> None:
        for rank, tensor in outgoing.items():
            self._links[rank].push(OutgoingMessage(tag, content_of(tensor)), urgency)
            self._flush(self._links[rank])

    @property
    def bears_pacing(self) -> bool:
        """Whether any of its connections does."""
        return any(link.bears_pacing for link in self._links.values())

    def pace(self, bytes_per_s: Mapping[int, int]) -> None:
        """From now on sends these ranks no more than so much, and the others as much as TCP lets it."""
        for rank, link in self._links.items():
            link.pace(bytes_per_s.get(rank, UNPACED))

    def break_all(self, reason: str) -> None:
        """Ends all exchanges, those to come too."""
        self._meeting.leave(reason)
        with self._lock:
            self._reason = self._reason or reason
            broken, self._open = list(self._open.values()), {}
        for link in self._links.values():
            link.close()
        for exchange in broken:
            exchange.future.set_result(self._reason)
        self._look_at()

    def close(self) -> None:
        """The generation is over; what the kernel has is still sent."""
        self._meeting.leave("the group was left")
        with self._lock:
            self._is_closed = True
        self._look_at()

    def _take_early(self, exchange: OpenExchange) -> dict[int, str]:
        """Fills in what came before; by rank, what was wrong with it."""
        wrong = {}
        for rank, tag in exchange.awaited():
            content = self._early.take(rank, tag)
            try:
                if content is not None:
                    exchange.fill(rank, tag, content)
            except ValueError as error:
                wrong[rank] = str(error)
        return wrong

    def _place(self, rank: int, tag: Tag, length_bytes: int) -> memoryview | None:
        """Where a message goes that is announced; None: it waits until an exchange begins."""
        with self._lock:
            exchange = self._open.get(tag.sequence)
            if exchange is not None:
                return exchange.target(rank, tag, length_bytes)
            return self._early.room(rank, length_bytes)

    def _note_came(self, rank: int, tag: Tag) -> None:
        with self._lock:
            content = self._early.arrived(rank)
            exchange = self._open.get(tag.sequence)
            if exchange is None:
                if content is not None:
                    self._early.keep(rank, tag, content)
                return
            if content is not None:
                exchange.fill(rank, tag, content)
            else:
                exchange.note_came(rank, tag)
        self._go_on(exchange)

    def _go_on(self, exchange: OpenExchange, done: Callable[[], None] | None = None) -> None:
        with self._lock:
            then = exchange.take_then(done)
        if then is not None:
            try:
                then()
            except Exception as error:  # whoever waits for the exchange hears it
                self._end([exchange], f"{type(error).__name__}: {error}")
                return
            self._go_on(exchange, then)
        elif exchange.is_over:
            self._end([exchange], _DONE)

    def _end(self, exchanges: Iterable[OpenExchange], result: torch.Tensor | str) -> None:
        with self._lock:
            ending = [one for one in exchanges if self._open.pop(one.sequence, None) is one]
        for exchange in ending:
            exchange.future.set_result(result)

    def _flush(self, link: MeshLink) -> None:
        try:
            through = link.flush()
        except OSError as error:
            self._lose(link, f"is gone: {error}")
            return
        if link.is_blocked:
            self._look_at([link])
        for message in through:
            with self._lock:
                exchange = self._open.get(message.sequence)
                if exchange is not None:
                    exchange.note_sent(link.rank)
            if exchange is not None:
                self._go_on(exchange)

    def _lose(self, link: MeshLink, what: str) -> None:
        with self._lock:
            reason = self._lost.setdefault(link.rank, f"{MARK}: rank {link.rank} {what}")
            needing = [one for one in self._open.values() if one.needs(link.rank)]
        link.close()
        self._look_at([link])
        self._end(needing, reason)

    def _look_at(self, links: Iterable[MeshLink] = ()) -> None:
        with self._lock:
            self._changed.update(links)
            if self._waker >= 0:
                with suppress(BlockingIOError):  # it is awake
                    os.write(self._waker, b"\0")

    def _run(self, woken: int) -> None:
        try:
            with DefaultSelector() as selector:
                selector.register(woken, EVENT_READ)
                for link in self._links.values():
                    selector.register(link, EVENT_READ, link)
                self._carry(selector, woken)
        except Exception as error:  # nobody else would hear of it, and all would wait
            self.break_all(f"{MARK}: {type(error).__name__}: {error}")
        finally:
            with self._lock:
                os.close(self._waker)
                self._waker = -1
            os.close(woken)
            for link in self._links.values():
                link.free()
            self._end(list(self._open.values()), "the group was left")

    def _carry(self, selector: DefaultSelector, woken: int) -> None:
        next_look_s = 0.0
        while not self._reason and not self._is_closed:
            for key, events in selector.select(DEADLINE_LOOK_S):
                if key.data is None:
                    os.read(woken, 4096)
                    continue
                if events & EVENT_WRITE:
                    self._flush(key.data)
                if events & EVENT_READ:
                    self._receive(key.data)
                watch(selector, key.data, key.data.rank in self._lost)
            with self._lock:
                changed, self._changed = self._changed, set()
            for link in changed:
                if link.is_paused:
                    self._receive(link)
                watch(selector, link, link.rank in self._lost)
            if time.monotonic() >= next_look_s:
                next_look_s = time.monotonic() + DEADLINE_LOOK_S
                self._expire()

    def _receive(self, link: MeshLink) -> None:
        try:
            link.receive(lambda tag, length: self._place(link.rank, tag, length), self._came_from(link.rank))
        except (OSError, EOFError, ValueError) as error:
            self._lose(link, str(error))

    def _came_from(self, rank: int) -> Callable[[Tag], None]:
        return lambda tag: self._note_came(rank, tag)

    def _expire(self) -> None:
        now_s = time.monotonic()
        with self._lock:
            late = [one for one in self._open.values() if one.deadline_s <= now_s]
        for exchange in late:
            self._end([exchange], f"{MARK}: Timed out waiting for ranks {exchange.needed()}")
