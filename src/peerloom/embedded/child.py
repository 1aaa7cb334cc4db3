"""One process of the embedded system."""

import sys
from collections.abc import Sequence
from pathlib import Path

from peerloom.embedded.process import SupervisedProcess
from peerloom.embedded.process_plan import ProcessPlan


class Child(SupervisedProcess):
    """Starts, and starts again, one planned process; it keeps the addresses it first got.

    With `has_metrics` it serves metrics too, at `metrics`.
    """

    def __init__(self, plan: ProcessPlan, log: Path, has_metrics: bool = False) -> None:
        super().__init__(plan.name, log)
        self.plan = plan
        self.address = self.metrics = ""
        self._has_metrics = has_metrics

    def launch(self, registry: str, lifeline: int, inherited: Sequence[int]) -> None:
        """Starts the process; `lifeline` is the read end of the pipe that ends it with its starter."""
        where = ["--listen", self.address or "127.0.0.1:0"]
        if self._has_metrics:
            where += ["--metrics", self.metrics or "127.0.0.1:0"]
        if registry:
            where += ["--registry", registry]
        self.start(
            [sys.executable, "-m", self.plan.module, *where, *self.plan.arguments], lifeline, inherited
        )

    def wait_for_address(self) -> str:
        """The host:port that it printed. Raises UnavailableError when it ends or keeps silent instead."""
        self.address, _, self.metrics = self.wait_until_ready().partition(" metrics=")
        return self.address
