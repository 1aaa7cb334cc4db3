"""What a process is given, and what goes before it: its agent's folder, and secrets."""

from pathlib import Path

import pytest

from peerloom.errors import ConfigurationError
from peerloom.sandbox.grant import Grant, file_rights
from peerloom.sandbox.kernel_support import SandboxSupport
from peerloom.sandbox.landlock import handled_files
from peerloom.sandbox.process_environment import clean_environment
from peerloom.sandbox.readable import without
from peerloom.services.node_agent.config import NodeConfig
from peerloom.services.node_agent.inference_process import inference_command
from peerloom.services.node_agent.owner.inventory import LentMachine
from peerloom.services.node_agent.workers.grants import (
    check_sandbox,
    inference_grant,
    sandbox_label,
    worker_grant,
)

CPU = LentMachine(1, "cpu", (), 0, 1)
GPU = LentMachine(1, "cuda", (), 0, 1)
WHOLE, NONE = SandboxSupport(7, seccomp=True), SandboxSupport(0, seccomp=False)


def test_a_grant_comes_over_the_line_as_it_was() -> None:
    grant = Grant("/own", ("/data", "/ca.pem"), "/state", on_gpu=True, file_limit_bytes=5)
    assert Grant.from_json(grant.to_json()) == grant


def test_a_worker_reads_what_its_owner_lends_and_writes_its_own_folder() -> None:
    config = NodeConfig(state="/state", data_root=("/data",), memory_limit_bytes=100)
    grant = worker_grant(config, CPU, Path("/state/workers/one"))
    assert grant == Grant(
        folder="/state/workers/one",
        reads=("/data",),
        private="/state",
        file_limit_bytes=config.artifact_limit_bytes,
        memory_limit_bytes=200,
    )
    rights = file_rights(grant, ["/python"], ["/listed"], ["/dev/nvidia0"])
    assert rights.writes == ("/state/workers/one",)
    assert {"/python", "/data"} < set(rights.reads)
    assert "/dev/nvidia0" not in rights.devices
    assert not [
        path for path in rights.reads if path in ("/", "/etc", "/proc", "/home", "/root", "/tmp", "/run")
    ]


def test_a_worker_on_a_gpu_has_its_devices_and_shared_memory() -> None:
    grant = worker_grant(NodeConfig(memory_limit_bytes=100), GPU, Path("/own"))
    assert grant is not None
    assert (grant.on_gpu, grant.memory_limit_bytes) == (True, 0)
    rights = file_rights(grant, [], [], ["/dev/nvidia0", "/dev/nvidiactl"])
    assert {"/dev/nvidia0", "/dev/nvidiactl"} < set(rights.devices)
    assert rights.writes == ("/own", "/dev/shm")


def test_the_inference_server_is_started_in_its_sandbox_unless_the_owner_wants_none() -> None:
    config = NodeConfig(state="/state")
    folder = Path("/state/inference")
    grant = inference_grant(config, CPU, folder)
    assert grant is not None
    assert (grant.folder, grant.reads, grant.private) == ("/state/inference", (), "/state")
    command = inference_command(config, CPU, "127.0.0.1:1", folder, grant)
    assert command[1:4] == ["-m", "peerloom.sandbox", grant.to_json()]
    assert command[5:7] == ["-m", "peerloom.inference.server"]
    free = NodeConfig(no_sandbox=True)
    assert (worker_grant(free, CPU, folder), inference_grant(free, CPU, folder)) == (None, None)
    assert inference_command(config, CPU, "127.0.0.1:1", folder, None) == command[4:]


def test_code_is_let_in_where_something_holds_it_or_the_owner_says_that_nothing_shall() -> None:
    check_sandbox(NodeConfig(allow_code=True), WHOLE)
    check_sandbox(NodeConfig(), NONE)
    check_sandbox(NodeConfig(allow_code=True, no_sandbox=True), NONE)
    for lacking in (NONE, SandboxSupport(7, seccomp=False), SandboxSupport(0, seccomp=True)):
        with pytest.raises(ConfigurationError, match=r"this kernel has no .* --no-sandbox"):
            check_sandbox(NodeConfig(allow_code=True), lacking)


def test_a_nodes_record_says_what_holds_its_workers() -> None:
    assert sandbox_label(NodeConfig(), WHOLE) == "landlock-7+seccomp"
    assert sandbox_label(NodeConfig(), NONE) == "none"
    assert sandbox_label(NodeConfig(no_sandbox=True), WHOLE) == "off"
    with pytest.raises(ConfigurationError, match="found by the agent"):
        NodeConfig(labels=("sandbox=landlock-9",))


def test_the_agents_folder_is_left_out_of_what_holds_it(tmp_path: Path) -> None:
    for name in ("home/code", "home/agent/state", "home/agent/notes", "lib"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home" / "link").symlink_to(tmp_path / "home" / "agent")
    paths = [
        f"{tmp_path}/home",
        f"{tmp_path}/lib",
        f"{tmp_path}/home/agent/state/workers",
        f"{tmp_path}/home/link",
    ]
    found = without(paths, f"{tmp_path}/home/agent/state")
    assert {Path(path).relative_to(tmp_path).as_posix() for path in found.reads} == {
        "home/code",
        "home/agent/notes",
        "lib",
    }
    assert {Path(path).name for path in found.lists} == {"home", "agent"}
    assert without(["/a/b"], "").reads == ("/a/b",)


def test_of_a_hidden_folder_that_holds_the_agents_nothing_is_given(tmp_path: Path) -> None:
    """`peerloom up` keeps all services' folders in .peerloom."""
    for name in (".peerloom/nodes/node-1", ".peerloom/nodes/node-2", ".peerloom/registry", "tasks", ".cache"):
        (tmp_path / name).mkdir(parents=True)
    found = without([str(tmp_path)], f"{tmp_path}/.peerloom/nodes/node-1")
    assert found.reads == (f"{tmp_path}/.cache", f"{tmp_path}/tasks")
    assert found.lists == (str(tmp_path),)


def test_an_older_kernel_is_asked_for_what_it_knows() -> None:
    """13 rights in the first version; then moving (bit 13), cutting (14) and devices (15)."""
    assert [handled_files(abi).bit_length() for abi in (1, 2, 3, 4, 5, 7)] == [13, 14, 15, 15, 16, 16]
    assert handled_files(4) == 0x7FFF


def test_secrets_of_the_owner_stay_with_the_owner() -> None:
    given = {
        "PATH": "/bin",
        "PYTHONPATH": "/tasks",
        "OMP_NUM_THREADS": "2",
        "NCCL_DEBUG": "INFO",
        "AWS_SECRET_ACCESS_KEY": "a",
        "PEERLOOM_NODE_STATE": "/state",
        "SSH_AUTH_SOCK": "/run/agent",
        "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/bus",
    }
    kept = {"PATH", "PYTHONPATH", "OMP_NUM_THREADS", "NCCL_DEBUG"}
    assert set(clean_environment(given, is_confined=False)) == kept
    confined = clean_environment(given, is_confined=True)
    assert confined["RES_OPTIONS"] == "use-vc"
    assert confined.items() >= {name: given[name] for name in kept}.items()
