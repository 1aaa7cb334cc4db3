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
    stands_by: bool


class Announcements:
    """The newest announcement of each service, listed for `lease_s` seconds; of each kind at most 8."""

    def __init__(self, lease_s: float, clock: Clock) -> None:
        self.lease_s = lease_s
        self._clock = clock
        self._newest: dict[tuple[int, str], ServiceAnnouncement] = {}

    def announce(
        self, kind: "pb.ServiceKind.ValueType", address: str, epoch: int = 0, *, stands_by: bool = False
    ) -> None:
        """Takes an announcement. Raises InvalidArgumentError for an unknown kind or a bad address."""
        check_choice("kind", kind, _KINDS, "SERVICE_KIND_SELECTOR or SERVICE_KIND_TRAINER")
        check_address("address", address)
        now = self._clock
        said = ServiceAnnouncement(kind, address, now.wall_s(), now.monotonic_s(), epoch, stands_by)
        self._newest[kind, address] = said
        of_kind = [found for found in self.standing() if found.kind == kind]
        others = {key: found for key, found in self._newest.items() if key[0] != kind}
        self._newest = others | {(kind, found.address): found for found in of_kind[:_KIND_LIMIT]}

    def standing(self) -> list[ServiceAnnouncement]:
        """The announcements whose lease has not ended, by kind; of a kind those who stand by come last.

        Of those who lead one has the highest epoch; any other was deposed, also when it wakes and says so.
        """
        since_s = self._clock.monotonic_s() - self.lease_s
        found = [one for one in self._newest.values() if one.monotonic_s > since_s]
        leading = {kind: max((one.epoch for one in found if one.kind == kind), default=0) for kind in _KINDS}
        standing = [one for one in found if one.stands_by or one.epoch == leading[one.kind]]
        return sorted(standing, key=lambda one: (one.kind, one.stands_by, -one.monotonic_s))


def check_announces(caller: Principal | None, kind: "pb.ServiceKind.ValueType") -> None:
    """Raises PermissionDeniedError for a service that announces itself as one of another kind."""
    if caller is not None and pb.ServiceKind.Name(kind) != f"SERVICE_KIND_{caller.role.upper()}":
        raise PermissionDeniedError(
            f"{caller} can't announce a {pb.ServiceKind.Name(kind)}: a service announces itself only.",
            reason="ANOTHER_SERVICE",
        )
