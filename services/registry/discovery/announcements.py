"""Where the other services are; in memory only, since they announce themselves again and again."""

from dataclasses import dataclass

from peerloom.errors import PermissionDeniedError
from peerloom.kit.checks import check_address, check_choice
from peerloom.kit.clock import Clock
from peerloom.kit.principal import Principal
from peerloom.v1 import registry_pb2 as pb

_KIND_LIMIT = 8
_KINDS = (pb.SERVICE_KIND_SELECTOR, pb.SERVICE_KIND_TRAINER)


@dataclass(frozen=True)
class ServiceAnnouncement:
    """Where a service says that it is, by which epoch, and when it said so (wall and monotonic seconds)."""

    kind: pb.ServiceKind.ValueType
    address: str
    wall_s: float
    monotonic_s: float
    epoch: int


class Announcements:
    """The newest announcement of each service, listed for `lease_s` seconds; of each kind at most 8."""

    def __init__(self, lease_s: float, clock: Clock) -> None:
        self.lease_s = lease_s
        self._clock = clock
        self._newest: dict[tuple[int, str], ServiceAnnouncement] = {}

    def announce(self, kind: "pb.ServiceKind.ValueType", address: str, epoch: int = 0) -> None:
        """Takes an announcement. Raises InvalidArgumentError for an unknown kind or a bad address."""
        check_choice("kind", kind, _KINDS, "SERVICE_KIND_SELECTOR or SERVICE_KIND_TRAINER")
        check_address("address", address)
        now = self._clock
        said = ServiceAnnouncement(kind, address, now.wall_s(), now.monotonic_s(), epoch)
        self._newest[kind, address] = said
        of_kind = [found for found in self.standing() if found.kind == kind]
        others = {key: found for key, found in self._newest.items() if key[0] != kind}
        self._newest = others | {(kind, found.address): found for found in of_kind[:_KIND_LIMIT]}

    def standing(self) -> list[ServiceAnnouncement]:
        """The announcements whose lease has not ended, ordered by kind; of a kind the leader first.

        Who leads has the highest epoch: a deposed one that wakes and announces itself comes behind.
        """
        since_s = self._clock.monotonic_s() - self.lease_s
        found = [one for one in self._newest.values() if one.monotonic_s > since_s]
        return sorted(found, key=lambda one: (one.kind, -one.epoch, -one.monotonic_s))


def check_announces(caller: Principal | None, kind: "pb.ServiceKind.ValueType") -> None:
    """Raises PermissionDeniedError for a service that announces itself as one of another kind."""
    if caller is not None and pb.ServiceKind.Name(kind) != f"SERVICE_KIND_{caller.role.upper()}":
        raise PermissionDeniedError(
            f"{caller} can't announce a {pb.ServiceKind.Name(kind)}: a service announces itself only.",
            reason="ANOTHER_SERVICE",
        )
