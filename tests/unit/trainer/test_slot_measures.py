"""Aim: shards are divided by memory, which the slots of one node have together."""

from peerloom.services.trainer.workers.slot_measures import SlotMeasures
from peerloom.worker.shares import stage_shares


def test_slots_of_one_node_divide_its_memory() -> None:
    """24 GB alone, and two on a node with 16: three times as much for the first as for each of these."""
    slots, nodes = SlotMeasures(), {"a": "n1", "b": "n2", "c": "n2", "elsewhere": "n1"}
    for worker_id, free in (("a", 24_000), ("b", 16_000), ("c", 16_000), ("elsewhere", 24_000)):
        slots.has_room(worker_id, free)
    rooms = slots.rooms(["a", "b", "c"], nodes)
    assert rooms == {"a": 1 / 24_000, "b": 2 / 16_000, "c": 2 / 16_000}
    assert stage_shares(["a", "b", "c"], rooms) == [10_000, 3_333, 3_333]


def test_who_told_nothing_is_left_out() -> None:
    slots = SlotMeasures()
    slots.has_room("a", 0)
    slots.computed("a", 0.0)
    assert slots.rooms(["a", "b"], {"a": "n1", "b": "n2"}) == {}
    assert slots.speeds() == {}
    assert stage_shares(["a", "b"], {}) == [1, 1]
