"""Starts the trainer: `python -m peerloom.services.trainer`."""

import asyncio
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from peerloom.admission.joining import enter
from peerloom.admission.staying import keeping_fresh
from peerloom.artifacts.backed_store import BackedStore
from peerloom.artifacts.fetch.peers import holders_at
from peerloom.artifacts.known_holders import KnownHolders
from peerloom.artifacts.object_store import ObjectStore, open_object_store
from peerloom.artifacts.object_transfers import ObjectTransfers
from peerloom.artifacts.service import open_exchange
from peerloom.artifacts.store import ArtifactStore
from peerloom.kit.clock import Clock, SystemClock
from peerloom.kit.config import load_config
from peerloom.kit.database import Database, SqlThread, connect_database
from peerloom.kit.dialing import Dialer
from peerloom.kit.directory import Directory
from peerloom.kit.evidence import EvidenceReporter
from peerloom.kit.logs import configure_logs
from peerloom.kit.runtime import Runtime
from peerloom.kit.same_system import note_own_system, stand_by_in
from peerloom.kit.server import Endpoint, Server, run
from peerloom.kit.standby import serve_with_lease
from peerloom.kit.state_folder import make_private
from peerloom.kit.tracing_setup import start_tracing
from peerloom.services.trainer.config import TrainerConfig
from peerloom.services.trainer.jobs.commit_queue import CommitQueue
from peerloom.services.trainer.jobs.event_pruning import prune_forever
from peerloom.services.trainer.jobs.runner import JobDependencies
from peerloom.services.trainer.jobs.submission import SubmissionChecks
from peerloom.services.trainer.jobs.supervisor import JobSupervisor
from peerloom.services.trainer.models.collecting import Collector
from peerloom.services.trainer.models.distributing import Distributor
from peerloom.services.trainer.models.evaluating import Evaluator, ModelExaminer
from peerloom.services.trainer.models.evaluator_process import EvaluatorProcess
from peerloom.services.trainer.nodes.evidence_outbox import EvidenceOutbox
from peerloom.services.trainer.nodes.job_logs import JobLogs
from peerloom.services.trainer.nodes.recruiting import Recruiter
from peerloom.services.trainer.servicer import TrainerServicer
from peerloom.services.trainer.store import TrainerStore
from peerloom.services.trainer.trainer_metrics import TrainerMetrics
from peerloom.services.trainer.workers.session_router import SessionRouter
from peerloom.v1.artifact_pb2_grpc import add_ArtifactServiceServicer_to_server
from peerloom.v1.registry_pb2 import ServiceKind
from peerloom.v1.trainer_pb2_grpc import add_TrainerServiceServicer_to_server

SERVICES = ("peerloom.v1.TrainerService", "peerloom.v1.ArtifactService")
KIND = ServiceKind.SERVICE_KIND_TRAINER
MIGRATIONS = str(Path(__file__).parent / "migrations")


async def main() -> None:
    """Serves while this process holds its database's lease, until it is told to stop."""
    config = load_config(TrainerConfig, "trainer", sys.argv[1:])
    configure_logs("trainer", config.log_level)
    start_tracing("trainer")
    state, clock = Path(config.state), SystemClock()
    make_private(state)
    objects = await asyncio.to_thread(open_object_store, config.artifacts) if config.artifacts else None
    runtime = Runtime(clock, Dialer(await enter(state, config.join, clock)))
    database = connect_database(config.database_url(), "trainer")
    endpoint = Endpoint(config.listen, runtime.dialer.identity, config.allow_plain, config.metrics)
    server = Server(endpoint, SERVICES)
    host = config.listen.rpartition(":")[0]

    async def serve_with_folder(shared: Clock) -> None:
        # Opened under the lease: what another process is about to put into the folder would be removed.
        artifacts = open_artifacts(state / "artifacts", config.model_limit_bytes, objects)
        leading = replace(runtime, clock=shared)
        await serve(config, server, database, leading, artifacts, host, EvaluatorProcess())

    async def stand_by() -> None:
        async with Directory(runtime.dialer, config.registry) as directory:
            await stand_by_in(directory, database, KIND, config.advertise or server.address)

    await serve_with_lease(server, database, clock, MIGRATIONS, serve_with_folder, stand_by)


def open_artifacts(folder: Path, limit_bytes: int, objects: ObjectStore | None) -> ArtifactStore:
    """The store in a folder, which is a cache where there is an object store. Reads the disk."""
    return BackedStore(folder, limit_bytes, objects) if objects else ArtifactStore(folder, limit_bytes)


async def serve(
    config: TrainerConfig,
    server: Server,
    database: Database,
    runtime: Runtime,
    artifacts: ArtifactStore,
    bulk_host: str,
    evaluator: Evaluator,
) -> None:
    """Wires the trainer, top to bottom, and serves until `server` is asked to stop.

    `database` has the newest tables and its lease is ours; artifacts are given in bulk at `bulk_host`
    (empty: over gRPC only); `evaluator` is closed at the end.
    """
    clock, dialer, address = runtime.clock, runtime.dialer, config.advertise or server.address
    directory, store = Directory(dialer, config.registry), TrainerStore(database)
    with SqlThread(database) as sql:
        reporter = EvidenceReporter(EvidenceOutbox(store, sql), directory.selector)
        queue, router = CommitQueue(store, sql, clock, reporter), SessionRouter()
        objects = ObjectTransfers(artifacts) if isinstance(artifacts, BackedStore) else None
        exchange = open_exchange(
            artifacts,
            holders_at(directory.registry),
            lambda report: None,  # a job's witness hears of its own transfers
            bulk_host=bulk_host,
            dialer=dialer,
            clock=clock,
            keep_known=KnownHolders(directory.registry).keep,
            objects=objects,
        )
        distributor = Distributor(artifacts, exchange.cache, directory, dialer, address, clock)
        own_place = (config.request_timeout_s, address, database.epoch)
        recruiter = Recruiter(directory, distributor, dialer, clock, *own_place)
        examiner = ModelExaminer(config, artifacts, distributor, evaluator, clock)
        collector = Collector(artifacts, distributor, examiner, config.transfer_timeout_s, objects=objects)
        dependencies = JobDependencies(config, clock, router, recruiter, collector, reporter)
        jobs = JobSupervisor(store, sql, queue, SubmissionChecks(directory, distributor), dependencies, clock)
        servicer = TrainerServicer(jobs, queue, store, sql, router, JobLogs(recruiter), server.stopping)
        server.add_servicer(add_TrainerServiceServicer_to_server, servicer)
        server.observe(TrainerMetrics(queue, objects))
        server.add_servicer(add_ArtifactServiceServicer_to_server, exchange.servicer)
        try:
            async with server, keeping_fresh(server, dialer, config.registry, clock):
                # Workers and watchers that come back must find their job: it is there before the first call.
                await _take_up(jobs, server, objects)
                server.start_task("jobs", jobs.run_forever)
                server.start_task("commit queue", queue.write_forever)
                pruning = partial(prune_forever, store, sql, config.event_logs_kept, config.events_kept)
                server.start_task("event retention", pruning)
                server.start_task("evaluator", evaluator.keep)
                server.start_task("evidence", reporter.report_forever)
                _start_leading(server, directory, database, sql, address)
                server.start_task("end of streams", partial(_end_streams, server, router, queue))
                await server.start({"database": sql.probe, "registry": directory.probe})
                await server.serve_until_stopped()
        finally:
            await evaluator.close()
            await exchange.close()
            await queue.write_once()
            await directory.close()


async def _take_up(jobs: JobSupervisor, server: Server, objects: ObjectTransfers | None) -> None:
    """Goes on with all jobs; what the object store has, if there is one, is known before they ask for it."""
    if objects is not None:
        await objects.take_index()
        server.start_task("object store", objects.run_forever)
    await jobs.resume_all()


def _start_leading(
    server: Server, directory: Directory, database: Database, sql: SqlThread, address: str
) -> None:
    """Tells the registry that this one leads, and follows who leads elsewhere."""
    server.start_task("announcement", partial(directory.announce_forever, KIND, address, database.epoch))
    own_system = partial(note_own_system, directory, database, sql)
    server.start_task("own system", own_system, may_return=True)
    server.start_task("leading services", directory.follow_forever)


async def _end_streams(server: Server, router: SessionRouter, queue: CommitQueue) -> None:
    await server.stopping.wait()
    router.close_all()
    await queue.wake_watchers()


if __name__ == "__main__":
    run(main)
