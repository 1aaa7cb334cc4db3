"""The services of a gRPC server that has begun to listen before it knows them."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import grpc

_Handler: TypeAlias = "grpc.GenericRpcHandler[Any, Any]"


class AddedServices(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in its stubs only
    """Finds the handler of a call among services that may be added while gRPC serves already."""

    def __init__(self) -> None:
        self._handlers: list[_Handler] = []

    def add_generic_rpc_handlers(self, handlers: Sequence[_Handler]) -> None:
        self._handlers.extend(handlers)

    def add_registered_method_handlers(self, service_name: str, method_handlers: object) -> None:
        """What a generated `add_..._to_server` adds as well: the same once more."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        found = (handler.service(handler_call_details) for handler in self._handlers)
        return next((handler for handler in found if handler is not None), None)
