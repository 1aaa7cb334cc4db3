"""One generation's process group: forming it, and breaking it from another thread.

A break ends our own waits (`waits.py`, `meeting.py`), so the training thread is free at once. Gloo's own
abort doesn't end a collective that waits for a silent peer; shutting down the group's connected sockets
does, so that gloo's threads don't linger. A listening socket must be left alone (gloo terminates the
process otherwise), and so must the connections to the trainer and to the agent.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from peerloom.v1.trainer_pb2 import Backend, ConfigureGeneration
from peerloom.worker.failures import why_unfit
from peerloom.worker.group.breaking import is_collective_failure, leave_world, open_sockets, shut_down
from peerloom.worker.group.followed import FollowedGroup
from peerloom.worker.group.meeting import CONNECTED, PeerMeeting, measure_bytes_per_s
from peerloom.worker.group.relay.relay import Relay, RelayedGeneration
from peerloom.worker.group.relay.store import RelayedStore
from peerloom.worker.group.session_store import SessionStore
from peerloom.worker.group.waits import GenerationBrokenError, TensorFuture, Waits
from peerloom.worker.mesh.connecting import MeshMeeting
from peerloom.worker.mesh.greeting import greetings
from peerloom.worker.mesh.mesh import Mesh
from peerloom.worker.store_entries import StoreEntries


class Group:
    """Membership in one generation. `rank`, `world_size`, and by rank `owners` and `node_ids`, as the trainer
    gave them, and `beliefs` in these, if it knows them; `audits`: it wants shares of others computed again.

    Members find each other by their `entries`. Connections to the `spared_addresses` (host:port) survive a
    break. With a `relay` all that gloo sends travels by TLS; NCCL's can't. With a `mesh_host`, where to
    listen for it without a relay, they have a `mesh` besides; not with NCCL, nor alone.
    """

    def __init__(
        self,
        config: ConfigureGeneration,
        device: torch.device,
        entries: StoreEntries,
        *spared_addresses: str,
        relay: Relay | None = None,
        mesh_host: str = "",
    ) -> None:
        self.rank: int = config.rank
        self.world_size: int = config.world_size
        self.generation: int = config.generation
        self.owners: Sequence[str] = list(config.owners) or [str(rank) for rank in range(config.world_size)]
        self.node_ids: Sequence[str] = list(config.node_ids) or [str(rank) for rank in range(self.world_size)]
        self.beliefs: Sequence[float] = list(config.beliefs)
        self.audits: bool = config.audits
        self.device = device
        self._spared_ports = {_port(address) for address in spared_addresses}
        self._before = set(open_sockets())
        self._lock = threading.Lock()
        self._closed = False
        self._has_failed = False
        self._formed = threading.Event()
        self._broken = ""
        self._limit_s: float = config.collective_timeout_s
        self._leave_at: tuple[int, str] | None = None
        self._config = config
        self._is_nccl: bool = config.backend == Backend.BACKEND_NCCL
        self._waits = Waits(device)
        self._followed: FollowedGroup | None = None
        self._entries = entries
        self.tls = relay.tls if relay is not None else None
        self.forward = relay.forward if relay is not None else None
        self._relayed: RelayedGeneration | None = None
        limit_s: float = config.collective_timeout_s
        if relay is not None and not self._is_nccl:
            self._relayed = relay.open(config.generation, config.rank, config.node_ids)
            self._store: SessionStore = RelayedStore(entries, limit_s, self._relayed)
        else:
            self._store = SessionStore(entries, limit_s)
        self.mesh: Mesh | None = None
        if mesh_host and not self._is_nccl and self.world_size > 1:
            places = (self.rank, self.world_size, entries, limit_s, mesh_host, self._relayed)
            self.mesh = Mesh(MeshMeeting(*places), limit_s)
        gloo_host = self._relayed.host if self._relayed else ""
        self._meeting = PeerMeeting(config, self._store, gloo_host, self.mesh)
        self.bytes_per_s = 0.0  # between the members, once formed; 0: unknown

    def meet(self, on_met: Callable[[], None]) -> None:
        """Begins to connect to the others, ahead of `form`; `on_met` is called in a thread of its own."""
        self._meeting.begin(on_met)

    def form(self) -> None:
        """Meets the others. Raises GenerationBrokenError when one of them doesn't come."""
        try:
            self.check()
            self._meet()
            if self._config.beside and self.mesh is not None:
                for greeting in greetings(self.mesh, self.rank, self.world_size):
                    self.result(greeting)
        except (RuntimeError, ValueError) as error:
            raise self.broken(error) from error
        finally:
            self._formed.set()
        self.check()

    def _meet(self) -> None:
        # Torch counts groups in their keys, and a group that failed to form leaves the count raised: members
        # with different pasts would look for each other under different keys.
        dist.distributed_c10d._world.group_count = 0
        dist.init_process_group(
            "nccl" if self._is_nccl else CONNECTED,
            # A connected group has met already, in the thread that may be left behind.
            store=self._store if self._is_nccl else dist.HashStore(),
            rank=self.rank,
            world_size=self.world_size,
            timeout=timedelta(seconds=self._config.collective_timeout_s),
            device_id=self.device if self._is_nccl else None,
            pg_options=None if self._is_nccl else self._meeting.connect(),
        )
        if not self._is_nccl:
            self._followed = FollowedGroup(_world(), self._waits)
        self.bytes_per_s = self._meeting.bytes_per_s
        if self._is_nccl and self._config.newcomers:
            self.bytes_per_s = measure_bytes_per_s(
                lambda t: self.wait(dist.all_reduce(t, async_op=True)), self._config, str(self.device)
            )

    @property
    def process_group(self) -> dist.ProcessGroup:
        """For a library that waits for collectives by itself; those waits, too, end with the group."""
        return self._followed or _world()  # NCCL's abort ends what is under way

    def follow(self, work: dist.Work | None) -> TensorFuture:
        """A future of a collective's tensor; waiting for it ends with the group, at once."""
        assert work is not None, "a member of the group starts collectives with async_op=True"
        if self._is_nccl:  # its abort ends what is under way, and its futures know the GPU's streams
            tensor: TensorFuture = work.get_future().then(lambda done: done.value()[0])
            return tensor
        return self._waits.follow(work)

    def wait(self, work: dist.Work | None) -> torch.Tensor:
        """A collective's tensor, started with async_op=True. Raises what `result` does."""
        return self.result(self.follow(work))

    def result(self, future: TensorFuture) -> torch.Tensor:
        """Waits for a collective's tensor. Raises GenerationBrokenError, or RuntimeError as the library."""
        tensor = future.wait()
        if isinstance(tensor, torch.Tensor):
            return tensor
        self.check()
        raise RuntimeError(tensor)

    def expect(self, limit_s: float) -> None:
        """Limits collectives that begin from now on, at most to what the trainer allows.

        For the case that nobody is silent, and two members still can't reach each other.
        """
        limit_s = min(limit_s, self._config.collective_timeout_s)
        if self.world_size > 1 and limit_s != self._limit_s:
            self._limit_s = limit_s
            if self.mesh is not None:
                self.mesh.limit_s = limit_s
            dist.distributed_c10d._set_pg_timeout(timedelta(seconds=limit_s), dist.group.WORLD)

    def break_from_outside(self, reason: str) -> None:
        """Makes every call of this group that is under way, or comes, raise. Any thread may call it."""
        with self._lock:
            self._broken = self._broken or reason
            if self._closed:
                return
            if dist.is_initialized() and self._is_nccl:
                _world().abort()
        self._meeting.leave(reason)
        self._entries.close(reason)
        if self._relayed is not None:
            self._relayed.close()
        if self.mesh is not None:
            self.mesh.break_all(reason)
        self._shut_down_all()
        self._waits.break_all(reason)
        if not self._formed.is_set():
            threading.Thread(target=self._break_while_forming, name="break", daemon=True).start()

    def _break_while_forming(self) -> None:
        # Forming opens one connection after the other; each new one must be shut down too.
        while not self._formed.wait(0.02) and not self._closed:
            self._shut_down_all()

    def _shut_down_all(self) -> None:
        with self._lock:
            if not self._closed:
                for name, descriptor in open_sockets().items():
                    if name not in self._before:
                        shut_down(descriptor, self._spared_ports)

    def leave_at(self, step: int, reason: str) -> None:
        """Asks to leave at the boundary after `step` committed steps. Any thread may call it."""
        self._leave_at = (step, reason)

    def check(self, step: int | None = None) -> None:
        """Raises GenerationBrokenError if the group was broken, or `step` is the one to leave at."""
        if self._broken:
            raise GenerationBrokenError(self._broken)
        if step is not None and self._leave_at is not None and self.leaves_after(step):
            raise GenerationBrokenError(self._leave_at[1])

    def leaves_after(self, step: int) -> bool:
        """Whether it was asked to leave at the boundary after `step` committed steps, or before."""
        return self._leave_at is not None and step >= self._leave_at[0]

    def broken(self, error: Exception) -> GenerationBrokenError:
        """What a failed collective means for this generation. Raises `error` where this slot lacks room."""
        if why_unfit(error):
            raise error
        self._has_failed = True
        return GenerationBrokenError(self._broken or str(error).splitlines()[0][:300])

    @contextmanager
    def failures(self) -> Iterator[None]:
        """What the network or a peer fails at inside comes as GenerationBrokenError."""
        try:
            yield
        except RuntimeError as error:
            self.check()  # DDP wraps the reason of a break in an error of its own
            if is_collective_failure(error):
                raise self.broken(error) from error
            raise

    def close(self) -> None:
        """Leaves the group and frees its descriptors and threads, as soon as gloo lets go of them."""
        with self._lock:
            self._closed = True
        if self._relayed is not None:
            self._relayed.end()
        if self.mesh is not None:
            self.mesh.close()
        if dist.is_initialized():
            # The last one to let go of a group waits for its collectives: a thread that may.
            left = [_world()]
            if self._followed is not None:
                self._followed.leave()
            leave_world(self._is_nccl and (self._has_failed or bool(self._broken)))
            arguments = (left, self._waits.quiet)
            threading.Thread(target=_let_go, args=arguments, name="left-group", daemon=True).start()


def all_gather_rows(group: Group, own: Sequence[float], kind: torch.dtype) -> list[list[float]]:
    """What each rank said, by rank: the same on all. Each says as many numbers, exact in `kind`.

    Raises RuntimeError when a peer is lost.
    """
    rows = torch.zeros(group.world_size, len(own), dtype=kind)
    rows[group.rank] = torch.tensor(own, dtype=kind)
    if group.world_size > 1:
        rows = rows.to(group.device)
        group.wait(dist.all_reduce(rows, async_op=True))  # each row has one summand that isn't zero
    said: list[list[float]] = rows.tolist()
    return said


def _world() -> dist.ProcessGroup:
    assert dist.group.WORLD is not None, "the group was formed"
    return dist.group.WORLD


def _let_go(left: list[dist.ProcessGroup], quiet: threading.Event) -> None:
    quiet.wait()
    left.clear()


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
