"""What a worker has when it is forked: all others would wait for what it loads in its first step."""

import json
import subprocess
import sys

import pytest

LIMIT_S = 60.0
# Tries rules on invented attacks; no step has it.
REHEARSAL = {f"peerloom.worker.sync.robust.{name}" for name in ("attacks", "rehearsal", "rehearsed_audits")}
# Prints the modules of the step's packages that are there only when they are asked for.
MISSING = """
import importlib, json, pkgutil, sys
from peerloom.worker.__main__ import import_all_that_is_slow
import_all_that_is_slow()
missing = []
for name in ("group", "joining", "sync"):
    package = importlib.import_module(f"peerloom.worker.{name}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        missing += [module.name] * (module.name not in sys.modules)
print(json.dumps(missing))
"""


@pytest.mark.timeout(LIMIT_S)
def test_all_that_a_step_can_need_is_loaded_before_a_worker_is_forked() -> None:
    told = subprocess.run([sys.executable, "-c", MISSING], check=True, capture_output=True, text=True)
    assert set(json.loads(told.stdout)) - REHEARSAL == set()
