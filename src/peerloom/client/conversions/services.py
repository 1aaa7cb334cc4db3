"""Where the services are."""

from dataclasses import dataclass
from datetime import datetime

from peerloom.client.conversions.words import time_of, word_of, words_of
from peerloom.client.types import ServiceEndpoint, ServiceName
from peerloom.v1 import registry_pb2


@dataclass(frozen=True)
class ServiceAddress:
    """Where a service said that it is; its health isn't known yet."""

    name: ServiceName
    address: str
    announced_time: datetime | None

    def with_health(self, healthy: bool, detail: str) -> ServiceEndpoint:
        """The same with what its health service said."""
        return ServiceEndpoint(self.name, self.address, healthy, detail, self.announced_time)


def endpoints_of(registry_address: str, message: registry_pb2.ListServicesResponse) -> list[ServiceAddress]:
    """The registry itself first, then the services it knows, by name; kinds newer than we are left out."""
    known = words_of(registry_pb2.ServiceKind).values()
    announced = [
        ServiceAddress(
            word_of(registry_pb2.ServiceKind, each.kind), each.address, time_of(each, "announced_time")
        )
        for each in message.services
        if each.kind in known
    ]
    return [
        ServiceAddress("registry", registry_address, None),
        *sorted(announced, key=lambda each: each.name),
    ]
