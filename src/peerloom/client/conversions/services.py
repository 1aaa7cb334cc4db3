"""Where the services are."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from peerloom.client.conversions.scalars import time_of
from peerloom.client.types import ServiceEndpoint, ServiceName
from peerloom.v1 import registry_pb2

_NAMES: Mapping[int, ServiceName] = {
    registry_pb2.SERVICE_KIND_SELECTOR: "selector",
    registry_pb2.SERVICE_KIND_TRAINER: "trainer",
}


@dataclass(frozen=True)
class Announcement:
    """Where a service said that it is; its health isn't known yet."""

    name: ServiceName
    address: str
    announced_time: datetime | None

    def with_health(self, healthy: bool, detail: str) -> ServiceEndpoint:
        """The same with what its health service said."""
        return ServiceEndpoint(self.name, self.address, healthy, detail, self.announced_time)


def endpoints_of(registry_address: str, message: registry_pb2.ListServicesResponse) -> list[Announcement]:
    """The registry itself first, then the services it knows, by name; kinds newer than we are left out."""
    announced = [
        Announcement(_NAMES[each.kind], each.address, time_of(each, "announced_time"))
        for each in message.services
        if each.kind in _NAMES
    ]
    return [Announcement("registry", registry_address, None), *sorted(announced, key=lambda each: each.name)]
