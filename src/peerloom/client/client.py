"""What can be asked of a Peerloom system, without async."""

import inspect
import weakref
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from peerloom.client.artifacts import Artifacts
from peerloom.client.async_client import AsyncClient
from peerloom.client.door import Door
from peerloom.client.jobs import AsyncJobHandle, JobHandle
from peerloom.client.loop_thread import SyncFace, blocking, blocking_iterator
from peerloom.client.transport_seam import TransportSeam, transport_in_use

P = ParamSpec("P")


def _giving_handle(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, AsyncJobHandle]],
) -> Callable[Concatenate["Client", P], JobHandle]:
    """The sync method for one that gives a handle on a job."""

    @wraps(method)
    def call(client: "Client", /, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        return client._handle(method(client._core, *args, **kwargs))

    signature = inspect.signature(method)
    call.__signature__ = signature.replace(return_annotation=JobHandle)  # type: ignore[attr-defined]  # inspect reads it
    return call


class Client(SyncFace[AsyncClient]):
    """A Peerloom system behind one address, the registry's; use it as a context manager, or close it.

    The same as `AsyncClient`, which see, for scripts and notebooks; works inside a running event loop too.
    Ctrl-C ends a wait, never a job. One client may be used by several threads.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        identity: str = "",
        profile: str = "",
        patience_s: float = 60.0,
        as_node: str = "",
        transport: TransportSeam | None = None,
    ) -> None:
        transport = transport or transport_in_use()
        core = AsyncClient(
            address,
            identity=identity,
            profile=profile,
            patience_s=patience_s,
            as_node=as_node,
            transport=transport,
        )
        super().__init__(core, transport.loop_thread())
        self.artifacts = Artifacts(core.artifacts, self._loop)
        self.door = Door(core.door, self._loop)
        # Also when it is forgotten, and at the interpreter's end, while threads can still be joined.
        self._closer = weakref.finalize(self, self._loop.close, core.close)

    @property
    def address(self) -> str:
        """The registry's host:port."""
        return self._core.address

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.address}>"

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all channels and ends the private thread. Jobs go on."""
        self._closer()

    nodes = blocking(AsyncClient.nodes)
    node = blocking(AsyncClient.node)
    watch_nodes = blocking_iterator(AsyncClient.watch_nodes)
    drain = blocking(AsyncClient.drain)
    remove_node = blocking(AsyncClient.remove_node)
    sessions = blocking(AsyncClient.sessions)
    interruptions = blocking(AsyncClient.interruptions)
    services = blocking(AsyncClient.services)

    beliefs = blocking(AsyncClient.beliefs)
    belief = blocking(AsyncClient.belief)
    explain_belief = blocking(AsyncClient.explain_belief)
    belief_history = blocking(AsyncClient.belief_history)
    policies = blocking(AsyncClient.policies)

    train = _giving_handle(AsyncClient.train)
    run_script = _giving_handle(AsyncClient.run_script)
    job = _giving_handle(AsyncClient.job)
    jobs = blocking(AsyncClient.jobs)

    models = blocking(AsyncClient.models)
    model = blocking(AsyncClient.model)
    fetch_model = blocking(AsyncClient.fetch_model)
    infer = blocking(AsyncClient.infer)
    generate = blocking_iterator(AsyncClient.generate)

    def _handle(self, asking: Coroutine[Any, Any, AsyncJobHandle]) -> JobHandle:
        return JobHandle(self._loop.run(asking), self._loop, self)
