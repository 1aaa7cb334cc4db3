"""A node whose GPU can't be used: the job goes on without it, and it isn't asked again."""

from pathlib import Path

import pytest

from peerloom import Client, Embedded, WorkerLost

JOB_LIMIT_S = 120.0
# A card that the driver's own tool lists, and that torch, here without CUDA, can't use.
REASON = "the GPU of its slot can't be used: torch there was built without CUDA"
SMI = "#!/bin/sh\necho 'GPU-1, Some GPU, 8192'\n"


def test_a_gpu_that_does_not_work_costs_its_own_slot_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one slot a node gives each a card; one of two slots lends its cores."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "nvidia-smi").write_text(SMI)
    (programs / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with Embedded(tmp_path / "state", (1, 2)) as system, Client(system.address) as client:
        kinds = {node.name: {one.kind for one in node.accelerators} for node in client.nodes()}
        assert kinds == {"node-1": {"cuda"}, "node-2": {"cpu"}}
        job = client.train("digits", requests=3, epochs=2, seed=3)
        lost = [event for event in job.watch() if isinstance(event, WorkerLost)]
        assert job.result(JOB_LIMIT_S).succeeded
    assert [(event.worker.node_name, event.reason) for event in lost] == [("node-1", REASON)]
