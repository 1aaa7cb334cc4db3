"""What goes to an object store and comes back: in threads of its own, and again after failures."""

import asyncio
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import TypeVar

from peerloom.artifacts.backed_store import BackedStore
from peerloom.artifacts.object_store_errors import StoppedError
from peerloom.artifacts.upload_decisions import next_upload
from peerloom.errors import DataLossError, FailedPreconditionError, NotFoundError, PeerloomError
from peerloom.kit.backoff import Backoff
from peerloom.kit.logs import get_logger
from peerloom.v1.artifact_pb2 import Artifact

T = TypeVar("T")
_RESTORES_AT_ONCE = 4
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_log = get_logger()


class ObjectTransfers:
    """Belongs to the loop that it is made in. `run_forever` must run for anything to be uploaded.

    While the object store is away one upload after the other is tried, after pauses from 1 s to 60 s, and at
    once for somebody who waits for it.
    """

    def __init__(self, store: BackedStore) -> None:
        self._store, self._loop = store, asyncio.get_running_loop()
        self._changed, self._awaited = asyncio.Event(), asyncio.Event()
        self._uploads: dict[str, asyncio.Task[None]] = {}
        self._restores: dict[str, asyncio.Task[Artifact]] = {}
        self._askers: dict[str, set[asyncio.Future[None]]] = {}
        self._turns = asyncio.Semaphore(_RESTORES_AT_ONCE)
        self._backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self._stopping = threading.Event()
        self._away = ""  # why the last try failed
        self._has_failed = False
        store.on_waiting = self._wake

    @property
    def waiting_count(self) -> int:
        """How many artifacts are here and not yet in the object store."""
        return len(self._store.waiting())

    def is_elsewhere(self, digest: str) -> bool:
        """Whether only the object store has it."""
        return self._store.is_elsewhere(digest)

    def supersede(self, job_id: str, digests: Collection[str]) -> None:
        """As `BackedStore.supersede`; what goes from the object store does so later."""
        self._store.supersede(job_id, digests)

    async def settle(self, digest: str) -> None:
        """Returns once the object store has what is here under this digest, or nothing is.

        Raises FailedPreconditionError when a try to upload fails: it stays here and is tried again.
        DataLossError when it went from here before it was there.
        """
        if not self._store.is_waiting(digest):
            return
        answer = self._loop.create_future()
        self._askers.setdefault(digest, set()).add(answer)
        self._awaited.set()
        self._changed.set()
        try:
            await answer
        finally:
            askers = self._askers.get(digest, set())
            askers.discard(answer)
            if not askers:
                self._askers.pop(digest, None)

    async def restore(self, digest: str) -> Artifact:
        """Brings an artifact back, once however many ask; it goes on when who asked gives up.

        Raises what `BackedStore.restore` raises.
        """
        running = self._restores.get(digest)
        if running is None:
            running = self._restores[digest] = asyncio.create_task(self._restore(digest))
            running.add_done_callback(partial(self._restored, digest))
        return await asyncio.shield(running)

    async def take_index(self) -> None:
        """Reads what the object store has; while that is away it is done later."""
        try:
            await _in_thread(self._store.take_index)
            self._worked()
        except PeerloomError as error:
            self._failed(error)

    async def run_forever(self) -> None:
        """Uploads what waits and removes what was superseded, until cancelled."""
        try:
            while True:
                self._changed.clear()
                await self._take_turn()
                if not self._has_failed:
                    await self._changed.wait()
                if self._has_failed:
                    await self._pause()
        finally:
            await self.close()

    async def close(self) -> None:
        """Gives up what is under way: threads end after the part that they are at, or with the process."""
        self._stopping.set()
        tasks = [*self._uploads.values(), *self._restores.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _take_turn(self) -> None:
        self._awaited.clear()
        if not self._store.is_indexed:
            await self.take_index()
        if not self._has_failed and self._store.has_unwanted:
            await self._remove_unwanted()
        if self._has_failed:
            return
        for digest in [digest for digest in self._askers if not self._store.is_waiting(digest)]:
            self._answer(digest, None if self._store.is_stored(digest) else _gone(digest))
        while not (self._away and self._uploads):  # while it is away one at a time tries whether it is back
            chosen = next_upload(self._store.waiting(self._askers), self._uploads.keys())
            if chosen is None:
                return
            self._uploads[chosen] = asyncio.create_task(self._upload(chosen))

    async def _remove_unwanted(self) -> None:
        try:
            await _in_thread(partial(self._store.remove_unwanted, frozenset(self._uploads)))
        except PeerloomError as error:
            self._failed(error)

    async def _upload(self, digest: str) -> None:
        try:
            await _in_thread(lambda: self._store.upload(digest, self._go_on))
        except (NotFoundError, DataLossError) as error:  # gone from here, or damaged: nothing to upload
            _log.warning("upload_given_up", digest=digest, reason=error.message)
        except PeerloomError as error:
            self._failed(error)
        except StoppedError:
            pass
        else:
            self._worked()
        finally:
            del self._uploads[digest]
            self._changed.set()

    async def _restore(self, digest: str) -> Artifact:
        async with self._turns:
            return await _in_thread(lambda: self._store.restore(digest, self._go_on))

    def _restored(self, digest: str, task: asyncio.Task[Artifact]) -> None:
        self._restores.pop(digest, None)
        if not task.cancelled():
            task.exception()  # looked at: who asked may have given up

    async def _pause(self) -> None:
        self._has_failed = False
        with suppress(TimeoutError):
            async with asyncio.timeout(self._backoff.next_pause_s()):
                await self._awaited.wait()

    def _worked(self) -> None:
        self._backoff.succeeded()
        if self._away:
            _log.info("object_store_back", url=self._store.objects.url, waiting=self.waiting_count)
        self._away = ""

    def _failed(self, error: PeerloomError) -> None:
        self._has_failed = True
        if not self._away:
            url, count = self._store.objects.url, self.waiting_count
            _log.warning("object_store_away", url=url, reason=error.message, waiting=count)
        self._away = error.message
        for digest in list(self._askers):
            self._answer(digest, _kept_here(digest, error.message))

    def _answer(self, digest: str, failure: PeerloomError | None) -> None:
        for answer in self._askers.pop(digest, set()):
            if failure is None:
                _succeed(answer, None)
            else:
                _fail(answer, failure)

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._changed.set)

    def _go_on(self) -> None:
        if self._stopping.is_set():
            raise StoppedError


def _gone(digest: str) -> DataLossError:
    return DataLossError(
        f"The artifact {digest} was damaged or removed here before it was uploaded. Put it again.",
        reason="ARTIFACT_DAMAGED",
    )


def _kept_here(digest: str, failure: str) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"The artifact {digest} is kept by the trainer alone, until it can be uploaded: {failure} Put it "
        "again to hear when it is safe; its bytes needn't be sent twice.",
        reason="NOT_UPLOADED",
    )


async def _in_thread(work: Callable[[], T]) -> T:
    """The result of `work`, done in a thread that doesn't keep the process from ending.

    Not one of `asyncio.to_thread`'s: these may take minutes, and others wait for those.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            tell(partial(_fail, done, error))
        else:
            tell(partial(_succeed, done, result))

    def tell(what: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(what)

    threading.Thread(target=run, name="object store", daemon=True).start()
    return await done


def _succeed(done: "asyncio.Future[T]", result: T) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: "asyncio.Future[T]", error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)
