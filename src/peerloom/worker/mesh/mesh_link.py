"""One connection of a mesh: what waits to be sent on it, and what comes.

The socket never blocks. Any thread may send; one thread receives.
"""

import heapq
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector
from typing import Protocol

from peerloom.worker.group.relay.link import quick, shut
from peerloom.worker.mesh.frames import HEADER, Tag, header, parse_header

PIECE_BYTES = 1 << 18
# What the kernel holds back of a message can't be overtaken by a more urgent one: so little of it.
UNSENT_BYTES = 1 << 15
UNPACED = 0xFFFFFFFF
_MAX_PACING_RATE = 47  # Linux's SO_MAX_PACING_RATE, which Python doesn't name; bytes/s, 32 bits


class PeerConnection(Protocol):
    """A connected socket, plain or with TLS."""

    @property
    def socket(self) -> socket.socket:
        """The socket itself."""

    def settimeout(self, limit_s: float | None) -> None:
        """The socket's, for calls that begin from now on."""

    def seal(self, data: bytes | memoryview) -> bytes | memoryview:
        """What has to be written to the socket, in this order, for the peer to receive `data`."""

    def recv_into(self, target: memoryview) -> int:
        """How many bytes came, at most as many as there is room; 0 at the end. Raises OSError."""


class PlainConnection:
    """A socket as it is."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def settimeout(self, limit_s: float | None) -> None:
        self.socket.settimeout(limit_s)

    def seal(self, data: bytes | memoryview) -> bytes | memoryview:
        return data

    def recv_into(self, target: memoryview) -> int:
        return self.socket.recv_into(target)


class OutgoingMessage:
    """A message on its way to one peer."""

    def __init__(self, tag: Tag, content: memoryview) -> None:
        self.sequence = tag.sequence
        self._head = header(tag, len(content))
        self._content = content
        self._at = 0

    @property
    def is_over(self) -> bool:
        """Whether all of it was taken."""
        return not self._head and self._at == len(self._content)

    def next_piece(self) -> bytes | memoryview:
        """What comes next. The header goes in one packet with what follows it."""
        start, head = self._at, self._head
        self._head = b""
        self._at = min(len(self._content), start + PIECE_BYTES)
        piece = self._content[start : self._at]
        return head + bytes(piece) if head else piece


# Where a message goes that is announced: None while there is no room for it.
Place = Callable[[Tag, int], memoryview | None]


class MeshLink:
    """The connection to the worker of `rank`."""

    def __init__(self, rank: int, connection: PeerConnection) -> None:
        self.rank = rank
        self.is_paused = False  # what comes next has no place yet
        self.is_blocked = False  # the kernel takes no more for now
        self._connection = connection
        self._lock = threading.Lock()
        self._queue: list[tuple[int, int, OutgoingMessage]] = []
        self._count = 0
        self._message: OutgoingMessage | None = None
        self._sealed = memoryview(b"")
        self._header = bytearray(HEADER.size)
        self._unfilled = memoryview(self._header)
        self._announced: tuple[Tag, int] | None = None
        self._is_content = False
        quick(connection.socket)
        with suppress(OSError):
            connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        connection.socket.setblocking(False)

    @property
    def bears_pacing(self) -> bool:
        """Whether its TCP leaves how fast it sends to a pace.

        BBR finds the rate by sending more, and the shortest way by sending next to nothing for 200 ms. With a
        pace it couldn't make up for that.
        """
        with suppress(OSError):
            control = self._connection.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            return not control.startswith(b"bbr")
        return False

    def pace(self, bytes_per_s: int) -> None:
        """Sends no faster from now on where it bears that; `UNPACED`: as fast as TCP lets it."""
        if bytes_per_s != UNPACED and not self.bears_pacing:
            return
        with suppress(OSError):
            rate = struct.pack("=I", min(bytes_per_s, UNPACED))
            self._connection.socket.setsockopt(socket.SOL_SOCKET, _MAX_PACING_RATE, rate)

    def fileno(self) -> int:
        """For a selector; -1 once it is closed."""
        return self._connection.socket.fileno()

    def push(self, message: OutgoingMessage, urgency: int) -> None:
        """Sends a message after those of higher urgency, and those of the same that came before."""
        with self._lock:
            heapq.heappush(self._queue, (-urgency, self._count, message))
            self._count += 1

    def flush(self) -> list[OutgoingMessage]:
        """Hands the kernel what it takes; returns the messages that are through. Raises OSError."""
        through: list[OutgoingMessage] = []
        with self._lock:
            self.is_blocked = False
            try:
                while self._hand_over(through):
                    pass
            except BlockingIOError:
                self.is_blocked = True
        return through

    def receive(self, place: Place, on_came: Callable[[Tag], None]) -> None:
        """Takes what is there; `on_came` is called for each message that is complete.

        Raises OSError or EOFError when the peer is gone, ValueError for what it may not send.
        """
        self.is_paused = False
        with suppress(BlockingIOError):
            while self._find_place(place, on_came):
                count = self._connection.recv_into(self._unfilled)
                if not count:
                    raise EOFError("closed its connection")
                self._unfilled = self._unfilled[count:]

    def close(self) -> None:
        """Ends both directions at once; `free` gives the descriptor back."""
        shut(self._connection.socket)

    def free(self) -> None:
        """Closes the socket; what the kernel has is still sent."""
        self._connection.socket.close()

    def _hand_over(self, through: list[OutgoingMessage]) -> bool:
        if not self._sealed:
            if self._message is None:
                if not self._queue:
                    return False
                self._message = heapq.heappop(self._queue)[2]
            self._sealed = memoryview(self._connection.seal(self._message.next_piece()))
        self._sealed = self._sealed[self._connection.socket.send(self._sealed) :]
        if not self._sealed and self._message is not None and self._message.is_over:
            through.append(self._message)
            self._message = None
        return True

    def _find_place(self, place: Place, on_came: Callable[[Tag], None]) -> bool:
        """Whether there is room for what comes next."""
        while not self._unfilled:
            if self._is_content:
                assert self._announced is not None, "content follows a header"
                tag, self._announced, self._is_content = self._announced[0], None, False
                self._unfilled = memoryview(self._header)
                on_came(tag)
                continue
            self._announced = self._announced or parse_header(self._header)
            content = place(*self._announced)
            if content is None:
                self.is_paused = True
                return False
            self._unfilled, self._is_content = content, True
        return True


def watch(selector: BaseSelector, link: MeshLink, is_lost: bool) -> None:
    """Has the selector wait for what the link can do now: for nothing on one that is lost."""
    wanted = (0 if link.is_paused else EVENT_READ) | (EVENT_WRITE if link.is_blocked else 0)
    if is_lost:
        wanted = 0
    known = selector.get_map().get(link)
    if known is not None and not wanted:
        selector.unregister(link)
    elif known is not None and known.events != wanted:
        selector.modify(link, wanted, link)
    elif known is None and wanted:
        selector.register(link, wanted, link)
