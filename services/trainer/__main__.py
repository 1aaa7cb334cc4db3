"""`python -m peerloom.services.trainer`: wires the trainer, top to bottom."""

import asyncio
import sys
from pathlib import Path

from peerloom.kit.artifact_store import ArtifactStore
from peerloom.kit.clock import SystemClock
from peerloom.kit.config import load_config
from peerloom.kit.database import SqlThread, open_database
from peerloom.kit.directory import Directory
from peerloom.kit.exchange.holders import holders_at
from peerloom.kit.exchange.service import Exchange, open_exchange
from peerloom.kit.logs import configure_logs, get_logger
from peerloom.kit.server import Endpoint, Server, run
from peerloom.services.trainer.collecting import Collector
from peerloom.services.trainer.config import TrainerConfig
from peerloom.services.trainer.distributing import Distributor
from peerloom.services.trainer.evidence import EvidenceReporter
from peerloom.services.trainer.hub import Hub
from peerloom.services.trainer.jobs import Jobs
from peerloom.services.trainer.journal import Journals
from peerloom.services.trainer.logs import JobLogs
from peerloom.services.trainer.recruiting import Recruiter
from peerloom.services.trainer.rendezvous import Rendezvous
from peerloom.services.trainer.runner import Surroundings
from peerloom.services.trainer.servicer import TrainerServicer
from peerloom.services.trainer.store import TrainerStore
from peerloom.v1.artifact_pb2_grpc import add_ArtifactServiceServicer_to_server
from peerloom.v1.registry_pb2 import ListServicesRequest, ServiceKind
from peerloom.v1.trainer_pb2_grpc import add_TrainerServiceServicer_to_server


async def main() -> None:
    """Serves until stopped."""
    config = load_config(TrainerConfig, "trainer", sys.argv[1:])
    configure_logs("trainer", config.log_level)
    clock = SystemClock()

    migrations = str(Path(__file__).parent / "migrations")
    engine = open_database(config.database or f"sqlite:///{config.state}/trainer.sqlite", migrations)
    sql, store = SqlThread(engine, "trainer"), TrainerStore(engine)
    artifacts = ArtifactStore(Path(config.state) / "artifacts", config.model_limit_bytes)

    directory = Directory(config.registry, config.tls_ca)
    journals, hub = Journals(store, sql, clock), Hub()
    advertised: list[str] = []
    exchange = _exchange(config, artifacts, directory)
    distributor = Distributor(artifacts, exchange.stock, directory, config.tls_ca, lambda: advertised[0])
    recruiter = Recruiter(directory, distributor, config.tls_ca, config.request_timeout_s)
    collector = Collector(artifacts, distributor, config.transfer_timeout_s)
    reporter = EvidenceReporter(store, sql, directory)
    host = config.listen.rpartition(":")[0]
    rendezvous = Rendezvous(host, config.advertise.rpartition(":")[0] or host)
    around = Surroundings(
        config, clock, hub, recruiter, rendezvous, collector, reporter, lambda: advertised[0]
    )
    jobs = Jobs(store, sql, journals, directory, artifacts, distributor, around, clock)
    journals.on_written = lambda journal: jobs.recorded(journal.job.job_id)

    async def probe_registry() -> None:
        await directory.registry.call("ListServices", ListServicesRequest(), 1.5)

    endpoint = Endpoint(config.listen, config.tls_certificate, config.tls_key, config.allow_plain)
    services = ["peerloom.v1.TrainerService", "peerloom.v1.ArtifactService"]
    server = Server(endpoint, services, {"database": sql.probe, "registry": probe_registry})
    servicer = TrainerServicer(jobs, journals, store, sql, hub, JobLogs(recruiter), server.stopping)
    add_TrainerServiceServicer_to_server(servicer, server.grpc)
    add_ArtifactServiceServicer_to_server(exchange.servicer, server.grpc)

    address = server.bind()
    advertised.append(config.advertise or address)
    # Workers and watchers that come back must find their job: it is there before the first call is served.
    await jobs.resume_all()
    await server.start()
    print(f"address={address}", flush=True)
    background = [
        asyncio.create_task(journals.write_forever()),
        asyncio.create_task(reporter.report_forever()),
        asyncio.create_task(directory.announce_forever(ServiceKind.SERVICE_KIND_TRAINER, advertised[0])),
        asyncio.create_task(_warm_up(rendezvous)),
        asyncio.create_task(_end_streams(server.stopping, hub, journals)),
    ]
    await server.serve_until_stopped()
    await jobs.stop()
    await exchange.close()
    await journals.write_once()
    for task in background:
        task.cancel()
    await asyncio.gather(*background, return_exceptions=True)
    await directory.close()
    sql.close()


def _exchange(config: TrainerConfig, artifacts: ArtifactStore, directory: Directory) -> Exchange:
    return open_exchange(
        artifacts,
        holders_at(directory.registry),
        lambda report: None,  # a job's witness hears of its own transfers
        bulk_host="" if config.tls_certificate else config.listen.rpartition(":")[0],
        tls_ca=config.tls_ca,
    )


async def _warm_up(rendezvous: Rendezvous) -> None:
    # The first job should not wait for torch.
    try:
        await rendezvous.address()
    except Exception as error:
        get_logger().error("rendezvous_failed", reason=str(error))


async def _end_streams(stopping: asyncio.Event, hub: Hub, journals: Journals) -> None:
    await stopping.wait()
    hub.close_all()
    await journals.wake_watchers()


if __name__ == "__main__":
    run(main)
