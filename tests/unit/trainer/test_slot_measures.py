"""Aim: models are divided by memory, which the slots of one node have together."""

from peerloom.services.trainer.workers.slot_measures import SlotMeasures

NODES = {"a": "n1", "b": "n2", "c": "n2", "elsewhere": "n1"}
MB = 10**6


def test_slots_of_one_node_divide_its_memory() -> None:
    """24 GB alone, and two on a node with 16; 64 MB of each are torch's."""
    slots = SlotMeasures()
    for worker_id, free_mb in (("a", 24_000), ("b", 16_000), ("c", 16_000), ("elsewhere", 24_000)):
        slots.has_memory(worker_id, free_mb * MB, 100 * MB)
    assert slots.rooms(["a", "b", "c"], NODES, {}) == {"a": 23_936 * MB, "b": 7_936 * MB, "c": 7_936 * MB}


def test_an_owner_lends_no_more_than_he_says() -> None:
    """Of 512 MB that are lent 100 are in use, and 64 torch's; on the other node nothing is left."""
    slots = SlotMeasures()
    slots.has_memory("a", 24_000 * MB, 100 * MB)
    slots.has_memory("b", 24_000 * MB, 100 * MB)
    lent = {"n1": 512 * MB, "n2": 128 * MB}
    assert slots.rooms(["a", "b"], NODES, lent) == {"a": 348 * MB, "b": 0}


def test_who_told_nothing_is_left_out() -> None:
    slots = SlotMeasures()
    slots.has_memory("a", 0, 0)
    slots.computed("a", 0.0)
    assert slots.rooms(["a", "b"], NODES, {}) == {}
    assert slots.speeds() == {}
