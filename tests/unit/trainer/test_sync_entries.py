"""What workers are told of a job's method: nodes by their ids, as they know them."""

from peerloom.services.trainer.jobs.sync_entries import for_workers, in_use
from peerloom.v1.trainer_pb2 import Job, JobSpec, Worker

SITES = "schedule=wfbp,topology=hierarchy:east+west/north,codec=none"


def job(sync: str) -> Job:
    nodes = {"east": "node-0e", "north": "node-0n"}
    workers = [Worker(node_name=name, node_id=node_id) for name, node_id in nodes.items()]
    return Job(spec=JobSpec(sync=sync), workers=workers)


def test_named_sites_have_ids_and_who_is_not_there_stays() -> None:
    told = "schedule=wfbp,topology=hierarchy:node-0e+west/node-0n,codec=none"
    assert for_workers(job(SITES)) == told
    assert in_use(job(SITES)) == SITES, "the record says what was asked for"


def test_named_servers_have_ids_too_and_count_once() -> None:
    asked = "schedule=wfbp,topology=ps:east+west+node-0e,codec=int8"
    assert for_workers(job(asked)) == "schedule=wfbp,topology=ps:node-0e+west,codec=int8"
    assert in_use(job(asked)) == asked


def test_all_other_methods_are_told_as_they_are() -> None:
    for sync in ("", "schedule=wfbp,topology=hierarchy,codec=none", "topology=ps:2"):
        assert for_workers(job(sync)) == sync
