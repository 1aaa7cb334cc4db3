"""Where the services are."""

from dataclasses import dataclass
from datetime import datetime

from peerloom.client.conversions.words import time_of, word_of, words_of
from peerloom.client.types import ServiceEndpoint, ServiceName
from peerloom.kit.replica_addresses import addresses_in
from peerloom.v1 import registry_pb2


@dataclass(frozen=True)
class Health:
    """Whether a service answered, and says that it serves; `detail` says why not."""

    answered: bool
    serves: bool
    detail: str


@dataclass(frozen=True)
class ServiceAddress:
    """Where a service said that it is; its health isn't known yet."""

    name: ServiceName
    address: str
    announced_time: datetime | None
    stands_by: bool = False

    def with_health(self, health: Health) -> ServiceEndpoint:
        """The same with what its health service said; it is well to stand by for another."""
        stands_by = self.stands_by and health.answered and not health.serves
        healthy, detail = (True, "") if stands_by else (health.serves, health.detail)
        return ServiceEndpoint(self.name, self.address, healthy, detail, self.announced_time, stands_by)


def endpoints_of(registry_address: str, message: registry_pb2.ListServicesResponse) -> list[ServiceAddress]:
    """The registry's replicas first, then the services it knows, by name; unknown kinds are left out."""
    registries = addresses_in(registry_address)
    known = words_of(registry_pb2.ServiceKind).values()
    announced = [
        ServiceAddress(
            word_of(registry_pb2.ServiceKind, each.kind),
            each.address,
            time_of(each, "announced_time"),
            each.stands_by,
        )
        for each in message.services
        if each.kind in known
    ]
    return [
        *(ServiceAddress("registry", each, None, len(registries) > 1) for each in registries),
        *sorted(announced, key=lambda each: each.name),
    ]
