"""How a call to which we stream ended, which gRPC may forget.

When the other side ends such a call while a request is being written, the write fails, and gRPC's asyncio
calls that "Internal error from Core" in place of what the other side, or the broken connection, had said
before (grpc/grpc#36066).
"""

from collections.abc import Coroutine
from typing import Any, TypeVar

import grpc
from grpc import aio

T = TypeVar("T")


class FirstStatus:
    """Keeps the first status of a call; to be made as soon as the call is."""

    def __init__(self, call: Any) -> None:
        self._status: tuple[grpc.StatusCode, str, aio.Metadata] | None = None
        if isinstance(call, aio.Call):  # in memory nothing is forgotten
            call.add_done_callback(self._keep)

    def true_error(self, error: aio.AioRpcError) -> aio.AioRpcError:
        """The error that the call ended with, given the one that was raised."""
        if error.code() is not grpc.StatusCode.INTERNAL or self._status is None:
            return error
        code, details, trailing = self._status
        if code in (grpc.StatusCode.OK, grpc.StatusCode.INTERNAL):
            return error
        return aio.AioRpcError(code, error.initial_metadata(), trailing, details, error.debug_error_string())

    def _keep(self, call: Any) -> None:
        if self._status is None:
            self._status = _now(call.code()), _now(call.details()) or "", _now(call.trailing_metadata())


def _now(known: Coroutine[Any, Any, T]) -> T:
    # A callback can't wait, and needn't: of a call that is done all this is known.
    try:
        known.send(None)
    except StopIteration as answer:
        return answer.value  # type: ignore[no-any-return]
    known.close()
    raise AssertionError("the status of a call that is done is known")
