"""Pages of a made-up system, as the follower of a real one fills them."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

TIME = datetime(2026, 3, 1, 12, tzinfo=UTC)
HERE = {"told": True, "away_since": None, "answered": None, "trouble": ""}
GONE = {"told": True, "away_since": TIME, "answered": TIME, "trouble": "it can't be reached\x1b"}
ALL_THERE = {"address": "127.0.0.1:1", "services": {"registry": HERE, "trainer": HERE}}
AWAY = {"address": "127.0.0.1:1", "services": {"registry": HERE, "trainer": GONE}}


def node(name: str, **others: Any) -> dict[str, Any]:
    """A node's row."""
    row = {
        "id": f"node-{name}",
        "name": name,
        "state": "alive",
        "reason": "Registered for the first time.",
        "slots": 2,
        "used": 1,
        "draining": False,
        "owner": "",
        "address": "127.0.0.1:5001",
        "accelerators": ["1 cpu"],
        "gflops": 39.8,
        "load": {"cpu": 0.34, "memory": 0.5, "gpu": None},
        "belief": 1.5,
        "jobs": [],
    }
    return {**row, **others}


def job(id: str, **others: Any) -> dict[str, Any]:
    """A job's row."""
    row = {
        "id": id,
        "name": "",
        "task": "digits",
        "state": "running",
        "reason": "",
        "ended": False,
        "step": 3,
        "total_steps": 90,
        "loss": 0.5,
        "samples_per_s": 640.0,
        "metric": 0.75,
        "metric_name": "accuracy",
    }
    return {**row, **others}


def section_of(nodes: Sequence[Any], jobs: Sequence[Any], services: Any = ALL_THERE) -> Callable[[str], Any]:
    """A board's sections."""
    return {"nodes": nodes, "jobs": jobs, "services": services}.__getitem__
