"""Links that messages keep busy: those of ranks that are alike, and the ways that a site's ranks share."""

from collections.abc import Iterable, Sequence

from peerloom.kit.sync_model.access_links import SyncNetwork

SENDS, RECEIVES = "sends", "receives"


def directions_of(network: SyncNetwork) -> tuple[str, ...]:
    """The names of a link's directions; one where both take turns."""
    return (SENDS, RECEIVES) if network.is_full_duplex else (SENDS,)


class RoleLinks:
    """The links of roles, each of ranks that are simulated as one, and after them those of the trunks.

    `names` has them by number: two a role or a trunk, or one where both directions take turns.
    """

    def __init__(self, network: SyncNetwork, roles: Sequence[str]) -> None:
        self._directions = directions_of(network)
        trunks = [f"site {number}" for number in range(len(network.trunks))]
        self.names = tuple(f"{one} {way}".strip() for one in (*roles, *trunks) for way in self._directions)
        self.first_trunk = len(roles) * len(self._directions)

    def busy(self, taken_s: Sequence[tuple[float, float]]) -> list[tuple[int, float]]:
        """How long (s) each link is busy where each role sends and receives so long."""
        each = len(self._directions)
        return [
            link
            for role, (sends_s, receives_s) in enumerate(taken_s)
            for link in ((each * role, sends_s), (each * role + each - 1, receives_s))
        ]


class TrunkLoads:
    """The trunks while one message goes each of these `ways`, from a rank to a rank; all are as long."""

    def __init__(self, network: SyncNetwork, ways: Iterable[tuple[int, int]]) -> None:
        self._links_s = (
            _seconds_a_byte(network, ways) if network.trunks else []
        )  # by link, as `RoleLinks` has them

    def busy(self, message_bytes: int, first: int) -> list[tuple[int, float]]:
        """How long (s) each trunk's link is busy, where it is; the first has the number `first`."""
        busy = ((first + number, message_bytes * each) for number, each in enumerate(self._links_s))
        return [one for one in busy if one[1]]

    def slowest_s(self, message_bytes: int) -> float:
        """How long the busiest of them takes; 0 where nothing crosses one."""
        return message_bytes * max(self._links_s, default=0.0)


def _seconds_a_byte(network: SyncNetwork, ways: Iterable[tuple[int, int]]) -> list[float]:
    site_of = {rank: number for number, trunk in enumerate(network.trunks) for rank in trunk.ranks}
    sent, received = [0] * len(network.trunks), [0] * len(network.trunks)
    for sender, taker in ways:
        here, there = site_of.get(sender), site_of.get(taker)
        if here == there:
            continue
        if here is not None:
            sent[here] += 1
        if there is not None:
            received[there] += 1
    found = []
    for trunk, out, back in zip(network.trunks, sent, received, strict=True):
        out_s, back_s = 8 * out / trunk.link.up_bits_per_s, 8 * back / trunk.link.down_bits_per_s
        found += [out_s, back_s] if network.is_full_duplex else [out_s + back_s]
    return found
