"""What a whole system tells Prometheus after one small job: what must follow from it, and nothing made up."""

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest
from scraping import Scrape, scrape, scraped_text

from peerloom import Client, Embedded
from peerloom.embedded.folder import StateFolder

JOB_LIMIT_S = 90.0
SETTLE_LIMIT_S = 60.0
DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana.json"
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """One node with two slots, after a job of one epoch that took both."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PEERLOOM_TRAINER_REQUEST_TIMEOUT_S", "60")
        with Embedded(tmp_path_factory.mktemp("system"), (2,), metrics=True) as started:
            with Client(started.address) as client:
                result = client.train("digits", requests=1, epochs=1).result(JOB_LIMIT_S)
                assert result.succeeded, result.reason
            yield started


def settled(address: str, holds: Callable[[Scrape], bool]) -> Scrape:
    """A scrape in which something holds that a busy machine comes to a little later."""
    deadline_s = time.monotonic() + SETTLE_LIMIT_S
    while not holds(found := scrape(address)):
        assert time.monotonic() < deadline_s, found.samples
    return found


def test_the_trainer_counts_the_job_its_steps_and_its_samples(system: Embedded) -> None:
    """1437 samples in batches of 32 are 45 steps."""
    found = settled(system.metrics["trainer"], lambda s: s.value("peerloom_trainer_commit_queue_length") == 0)
    assert found.value("peerloom_trainer_jobs_ended_total", state="succeeded") == 1
    assert found.value("peerloom_trainer_jobs_ended_total", state="failed") == 0
    assert found.value("peerloom_trainer_steps_committed_total") == 45
    assert found.value("peerloom_trainer_samples_committed_total") == 1437
    assert found.value("peerloom_trainer_generations_formed_total") >= 1
    assert found.value("peerloom_trainer_collective_bytes_total") > 0
    assert found.value("peerloom_trainer_recovery_seconds_count") <= found.value(
        "peerloom_trainer_workers_lost_total"
    )
    submit = "peerloom.v1.TrainerService/SubmitJob"
    assert found.value("peerloom_grpc_calls_total", method=submit, code="OK") == 1


def test_the_node_counts_its_workers_slots_and_artifacts(system: Embedded) -> None:
    found = settled(system.metrics["node-1"], lambda s: s.value("peerloom_node_slots_used") == 0)
    assert found.value("peerloom_node_workers_started_total") == 2
    exits = [found.value("peerloom_node_workers_ended_total", exit=one) for one in ("ok", "error", "signal")]
    assert sum(exits) == 2
    assert found.value("peerloom_node_slots") == 2
    assert found.value("peerloom_node_slots_lent") == 2
    assert found.value("peerloom_node_artifacts") >= 1, "it keeps the model"
    assert found.value("peerloom_node_artifact_bytes") > 1000
    assert found.value("peerloom_node_inference_up") == 0, "nobody asked a model"


def test_the_selector_counts_what_it_chose_and_learned(system: Embedded) -> None:
    found = settled(
        system.metrics["selector"],
        lambda s: s.value("peerloom_selector_evidence_taken_total", kind="training") == 1,
    )
    assert found.value("peerloom_selector_selection_duration_seconds_count") >= 1
    assert sum(found.value("peerloom_selector_nodes", state=s) for s in ("alive", "suspect")) == 1
    assert found.value("peerloom_selector_belief", percentile="50") != 0


def test_the_registry_counts_nodes_and_heartbeats(system: Embedded) -> None:
    found = settled(system.metrics["registry"], lambda s: s.value("peerloom_registry_watchers") >= 1)
    assert sum(found.value("peerloom_registry_nodes", state=s) for s in ("alive", "suspect")) == 1
    assert found.value("peerloom_registry_heartbeats_received_total") > 0
    assert found.value("peerloom_registry_newest_event") >= 1
    open_ = found.value("peerloom_grpc_streams_open", method="peerloom.v1.RegistryService/Heartbeat")
    assert open_ <= 1


def test_each_process_tells_of_itself_and_the_note_where(system: Embedded) -> None:
    note = StateFolder(system.folder.path).read_note()
    assert note is not None
    assert note.metrics == system.metrics
    assert set(note.metrics) == {"registry", "selector", "trainer", "node-1"}
    for address in note.metrics.values():
        found = scrape(address)
        assert found.value("process_resident_memory_bytes") > 0
        assert found.value("process_cpu_seconds_total") > 0
        assert found.value("process_open_fds") > 0


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian's package prometheus)")
def test_promtool_finds_nothing_to_say(system: Embedded) -> None:
    """What each process really answers, after a job."""
    for name, address in system.metrics.items():
        checked = subprocess.run(
            ("promtool", "check", "metrics"),
            input=scraped_text(address),
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", ""), name


def test_the_node_says_how_busy_its_machine_is(system: Embedded) -> None:
    found = settled(system.metrics["node-1"], lambda s: "peerloom_node_cores" in s.names)
    use, own = (found.value(f"peerloom_node_{whose}cpu_use_ratio") for whose in ("", "own_"))
    assert 0 <= own <= use <= 1
    used = found.value("peerloom_node_memory_used_bytes")
    assert 10**7 < used < found.value("peerloom_node_memory_bytes")


def test_the_dashboard_asks_for_what_these_scrapes_show(system: Embedded) -> None:
    """Of GPUs a machine without any tells the families alone."""
    settled(system.metrics["node-1"], lambda s: "peerloom_node_cores" in s.names)
    found = [scrape(address) for address in system.metrics.values()]
    names = {name for one in found for name in (*one.names, *one.types)}
    named = set(re.findall(r"\b(?:peerloom|process|python)_\w+", DASHBOARD.read_text()))
    assert named - names == set()


def test_an_inference_server_is_asked_how_much_it_answered(system: Embedded) -> None:
    inputs = numpy.zeros((1, 1, 8, 8), dtype="float32")
    with Client(system.address) as client:
        assert client.infer("digits", inputs, mode="remote").outputs.shape == (1, 10)
    found = settled(system.metrics["node-1"], lambda s: s.value("peerloom_node_inference_calls_total") >= 1)
    assert found.value("peerloom_node_inference_up") == 1
