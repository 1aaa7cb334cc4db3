"""`peerloom top` where there is no terminal: one snapshot as text, over real sockets."""

from pathlib import Path

from click.testing import CliRunner, Result
from client_system import System

from peerloom.cli.main import cli
from peerloom.v1 import registry_pb2, selector_pb2, trainer_pb2


def top(system: System) -> Result:
    return CliRunner().invoke(cli, ["top", "--address", system.address])


def test_a_pipe_gets_one_snapshot_also_with_a_service_away(tmp_path: Path) -> None:
    with System(tmp_path / "store") as system:
        spec = registry_pb2.NodeSpec(name="anna", address="127.0.0.1:1", slots=2)
        system.registry.nodes["anna"] = registry_pb2.Node(
            node_id="node-anna", spec=spec, state=registry_pb2.NODE_STATE_ALIVE
        )
        belief = selector_pb2.Belief(node_id="node-anna", name="anna", belief=1.5)
        system.selector.history["anna"] = [belief]
        system.add("job-1", trainer_pb2.JOB_STATE_RUNNING)
        done = top(system)
        assert done.exit_code == 0, done.output
        lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
        assert lines[0] == "1 of 1 nodes alive, slots in use unknown, 1 job going on"
        assert lines[2:4] == [
            "NODE STATE USED BELIEF JOBS CPU MEM GPU GFLOPS DEVICE OWNER ADDRESS",
            "anna alive -/2 1.500 - - - - - - - 127.0.0.1:1",
        ]
        assert lines[6].startswith("job-1 running")
        system.stop("trainer")
        done = top(system)
        assert done.exit_code == 4
        assert done.stdout.splitlines()[1].startswith("trainer away since ")
        assert "anna" in done.stdout
        assert "jobs unknown" in done.stdout.splitlines()[0]
