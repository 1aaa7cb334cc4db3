"""`python -m benchmarks.sandbox_forks ROUNDS`: forks workers as an agent's fork server does, and times them.

Prints two lists of milliseconds as JSON, from the fork to the end of the first step of the digits task: with
the sandbox (and a cgroup, where there can be one), and without. The clock is the machine's monotonic one,
which a fork shares with its parent.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import alternate
from peerloom.sandbox.cgroups import CgroupParent, GroupLimits, open_parent
from peerloom.sandbox.confining import confine
from peerloom.sandbox.grant import Grant
from peerloom.worker.__main__ import import_all_that_is_slow


def main() -> None:
    """Warms up as a fork server does, then measures in turn."""
    rounds = int(sys.argv[1])
    import_all_that_is_slow()
    with tempfile.TemporaryDirectory() as folder:
        parent, _ = open_parent(Path(folder))
        inside, outside = (
            (lambda: _first_step_ms(Grant(folder), parent)),
            (lambda: _first_step_ms(None, None)),
        )
        print(json.dumps(alternate(rounds, inside, outside)))
        if parent is not None:
            parent.close()


def _first_step_ms(grant: Grant | None, parent: CgroupParent | None) -> float:
    told, tells = os.pipe()
    waits, goes = os.pipe()
    begun_s = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            os.read(waits, 1)  # as a worker waits for its assignment
            if grant is not None:
                confine(grant)
            _make_first_step()
            os.write(tells, repr(time.monotonic()).encode())
        finally:
            os._exit(0)
    os.close(tells)
    group = parent.group(GroupLimits(tasks=1024)) if parent is not None else None
    if group is not None:
        group.add(pid)
    os.write(goes, b"g")
    with open(told, "rb") as answers:
        ended = answers.read()
    os.waitpid(pid, 0)
    if group is not None:
        group.end()
    os.close(waits)
    os.close(goes)
    if not ended:
        raise SystemExit("a worker ended before its first step")
    return 1000 * (float(ended) - begun_s)


def _make_first_step() -> None:
    import torch

    from peerloom.worker.task import Split, load_task

    task = load_task("digits", {})
    model, (train, _) = task.model(), task.data()
    optimiser = task.optimiser(model.parameters(), 0.1)
    assert isinstance(optimiser, torch.optim.Optimizer)  # this task has one
    assert isinstance(train, Split)
    inputs, targets = task.batch(train, torch.arange(32))
    loss = task.loss(model(inputs), targets).mean()
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    optimiser.step()


if __name__ == "__main__":
    main()
