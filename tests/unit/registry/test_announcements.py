"""Of several processes of one service the list names first who leads, and no one who was deposed."""

from peerloom.kit.clock import ManualClock
from peerloom.services.registry.discovery.announcements import Announcements
from peerloom.v1.registry_pb2 import SERVICE_KIND_SELECTOR, SERVICE_KIND_TRAINER

KIND = SERVICE_KIND_TRAINER


def listed(announcements: Announcements) -> list[tuple[str, bool]]:
    return [(one.address, one.stands_by) for one in announcements.standing()]


def test_a_new_leader_takes_the_place_of_the_former() -> None:
    clock = ManualClock()
    announcements = Announcements(15.0, clock)
    announcements.announce(KIND, "a:1", 1)
    announcements.announce(KIND, "b:1", 0, stands_by=True)
    assert listed(announcements) == [("a:1", False), ("b:1", True)]
    clock.advance(1.0)
    announcements.announce(KIND, "b:1", 2)
    assert listed(announcements) == [("b:1", False)]


def test_a_deposed_leader_that_wakes_is_not_listed_however_new_its_word() -> None:
    clock = ManualClock()
    announcements = Announcements(15.0, clock)
    announcements.announce(KIND, "b:1", 2)
    clock.advance(1.0)
    announcements.announce(KIND, "a:1", 1)
    announcements.announce(SERVICE_KIND_SELECTOR, "c:1", 1)
    assert listed(announcements) == [("c:1", False), ("b:1", False)]
