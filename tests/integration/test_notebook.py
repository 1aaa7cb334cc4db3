"""Cells in IPython, over real sockets: what is displayed, also of a job that is shown until it ends."""

import json
import subprocess
import sys
from pathlib import Path

from client_system import System

from peerloom.v1 import registry_pb2, trainer_pb2

# A shell replaces hooks of its process, so it has one of its own. What it displays is printed as JSON.
SHELL = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
shell = InteractiveShell.instance()
shell.history_manager.enabled = False
def run(cell):
    with capture_output() as captured:
        result = shell.run_cell(cell)
        result.raise_error()
    formatted = {} if result.result is None else shell.display_formatter.format(result.result)[0]
    return {
        "result": formatted.get("text/html", ""),
        "shown": [[one["data"]["text/html"], one["update"]] for one in captured._outputs],
    }
run(f"import peerloom; client = peerloom.Client({sys.argv[1]!r})")
print(json.dumps([run(cell) for cell in sys.argv[2:]]))
shell.run_cell("client.close()")
"""


def test_lists_are_tables_and_a_job_is_drawn_until_it_ends(tmp_path: Path) -> None:
    with System(tmp_path / "store") as system:
        spec = registry_pb2.NodeSpec(name="<anna>", address="127.0.0.1:1", slots=2)
        system.registry.nodes["anna"] = registry_pb2.Node(
            node_id="node-anna", spec=spec, state=registry_pb2.NODE_STATE_ALIVE
        )
        for step, loss in ((1, 2.0), (2, 1.0)):
            progress = trainer_pb2.StepProgress(step=step, total_steps=2, epoch=1, loss=loss, samples=64)
            system.add("job-1", trainer_pb2.JOB_STATE_RUNNING, step=progress)
        system.add("job-1", trainer_pb2.JOB_STATE_SUCCEEDED)
        cells = ["client.nodes()", "client.job('job-1').show()", "client.job('job-1').status()"]
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SHELL, system.address, *cells],
            capture_output=True,
            text=True,
            timeout=100,
            env={"IPYTHONDIR": str(tmp_path), "HOME": str(tmp_path)},
        )
        assert done.returncode == 0, done.stderr
    nodes, picture, status = json.loads(done.stdout.splitlines()[-1])
    assert ">&lt;anna&gt;</td>" in nodes["result"]
    (first, first_updates), *_, (last, last_updates) = picture["shown"]
    assert (first_updates, last_updates) == (False, True)
    assert ("<svg" in first, "<svg" in last) == (False, True)
    assert "succeeded: scripted" in last
    assert ">succeeded</td>" in status["result"]
