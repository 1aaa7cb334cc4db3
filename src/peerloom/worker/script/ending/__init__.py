"""What Python imports as a script's process starts, because this folder is on its PYTHONPATH."""

import os
from collections.abc import Mapping


def with_ending(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process whose Python imports this folder's `sitecustomize` before another."""
    places = os.path.dirname(__file__), environment.get("PYTHONPATH")
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, places))}
