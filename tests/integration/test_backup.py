"""Aim: what docs/backup.md says gives back beliefs, jobs and models, and loses what it says.

Method: a system trains one job to its end and begins another; its connections to the database are ended now
and then, as by failovers. While it runs, it is backed up by the page's commands. Then all of it is killed,
and a new system starts on a new database and new folders at new addresses, with a new node.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeGuard

import pytest
import sqlalchemy as sa
from conftest import StartService
from databases import new_database
from paced_jobs import begin_patient_job

from benchmarks.new_database import GIVEN
from peerloom import Client, JobHandle
from peerloom.client.types import GenerationFormed, JobEvent, StateChanged, StepCommitted

COORDINATORS = ("registry", "selector", "trainer")
FAILOVERS = 5
pytestmark = pytest.mark.timeout(240)


class System:
    """The three coordinators on the databases of `urls`, one node, and their folders under `folder`."""

    def __init__(self, start_service: StartService, urls: dict[str, str], folder: Path, node: str) -> None:
        self.registry = ""
        self.started = [self._start(start_service, name, urls[name], folder) for name in COORDINATORS]
        agent = ("--state", str(folder / "node"), "--registry", self.registry, "--slots", "1", "--name", node)
        self.started.append(start_service("node_agent", *agent))

    def _start(self, start_service: StartService, name: str, url: str, folder: Path) -> Any:
        arguments = ["--database", url, "--state", str(folder / name)]
        if name != "registry":
            arguments += ["--registry", self.registry]
        started = start_service(name, *arguments)
        self.registry = self.registry or started.address
        return started

    def kill(self) -> None:
        """As when the machine is lost."""
        for service in reversed(self.started):
            service.kill()


def end_connections(url: str) -> None:
    """Ends every connection to a database on PostgreSQL, in the middle of whatever it does."""
    server = sa.create_engine(os.environ[GIVEN], isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    query = sa.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name")
    with server.connect() as connection:
        connection.execute(query, {"name": sa.make_url(url).database})


def copy_database(source: str, target: str, folder: Path) -> None:
    """The page's commands: pg_dump and psql, or SQLite's VACUUM INTO."""
    if source.startswith("sqlite"):
        before, after = (sa.make_url(url).database for url in (source, target))
        subprocess.run(["sqlite3", str(before), f"VACUUM INTO '{after}'"], check=True)
        return
    dump = folder / "peerloom.sql"
    plain = [
        sa.make_url(url).set(drivername="postgresql").render_as_string(False) for url in (source, target)
    ]
    subprocess.run(["pg_dump", "--no-owner", "--file", dump, plain[0]], check=True)
    quiet = ["--quiet", "--single-transaction", "--set", "ON_ERROR_STOP=1", "--output", os.devnull]
    subprocess.run(["psql", *quiet, "--file", dump, plain[1]], check=True)


@pytest.fixture(params=["file", "postgresql"])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[dict[str, str]]]:
    """The databases of each coordinator before and after; on PostgreSQL all share one."""
    with ExitStack() as made:
        systems = []
        for folder in (tmp_path / "before", tmp_path / "after"):
            folder.mkdir()
            if request.param == "file":
                systems.append({name: f"sqlite:///{folder}/{name}.sqlite" for name in COORDINATORS})
            else:
                url = made.enter_context(new_database("postgresql", folder))
                systems.append(dict.fromkeys(COORDINATORS, url))
        yield systems


def test_a_backup_of_a_running_system_gives_back_what_it_knew(
    start_service: StartService,
    urls: list[dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PEERLOOM_TRAINER_CHECKPOINT_INTERVAL_S", "2")  # the first one is waited for
    before, after = urls
    system = System(start_service, before, tmp_path / "before", "ada")
    with Client(system.registry, patience_s=90) as client:
        next(client.watch_nodes())
        done = client.train("digits", requests=1, max_workers=1, epochs=1)
        model = done.result().model
        assert model is not None
        running = begin_patient_job(client, workers=1)
        told = _follow_through_failovers(running, before["trainer"])
        updates = _updates(client)
        assert updates
        # The order of docs/backup.md: each is older than what it points into.
        for name in ("trainer", "selector", "registry"):
            if before[name].startswith("sqlite") or name == "trainer":
                copy_database(before[name], after[name], tmp_path)
        shutil.copytree(tmp_path / "before/trainer", tmp_path / "after/trainer", dirs_exist_ok=True)
    assert told == list(range(1, len(told) + 1)), "an event was lost, or told twice"
    system.kill()

    restored = System(start_service, after, tmp_path / "after", "bob")
    with Client(restored.registry, patience_s=90) as client:
        assert _updates(client)[-len(updates) :] == updates
        assert next(node.name for node in client.nodes()) == "ada"
        next(event for event in client.watch_nodes() if event.node.name == "bob")
        jobs = {job.id: job.state for job in client.jobs()}
        assert jobs[done.id] == "succeeded"
        assert [found.digest for found in client.models()] == [model.digest]
        assert client.fetch_model(model.digest, tmp_path / "model.safetensors").is_file()
        resumed = client.job(running.id)
        steps = (e.first_step for e in resumed.watch(after=len(told)) if _is_formed_with(e, "bob"))
        assert next(steps) > 1, "it goes on from its checkpoint"
        assert resumed.cancel().state == "cancelled"


def _updates(client: Client) -> list[tuple[int, float]]:
    return [(each.updates, each.belief) for each in client.belief_history("ada", limit=None)]


def _is_formed_with(event: JobEvent, node: str) -> TypeGuard[GenerationFormed]:
    assert not (isinstance(event, StateChanged) and event.is_final), event
    return isinstance(event, GenerationFormed) and node in {worker.node_name for worker in event.workers}


def _follow_through_failovers(job: JobHandle, url: str) -> list[int]:
    """Follows a job until it has a checkpoint; ends the connections to the database at times."""
    numbers, ended = [], 0
    for event in job.watch():
        numbers.append(event.sequence)
        assert not (isinstance(event, StateChanged) and event.is_final), event
        if isinstance(event, StepCommitted) and event.step >= 20 * (ended + 1):
            ended += 1
            if ended > FAILOVERS and job.status().checkpoint_step is not None:
                return numbers
            if not url.startswith("sqlite"):
                end_connections(url)
    raise AssertionError("the job's events ended")
