"""Aim: a trainer that takes over with an empty disk has all that the former one had, from the bucket.

Method: two trainers with one database, one bucket (moto's S3) and a folder each. Code and data are put with
the first alone, a job is under way and another has given a model; then the first is killed and its folder
deleted.
"""

import asyncio
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import ServiceHandle, StartService
from paced_jobs import begin_patient_job
from replicated_system import Followed
from s3_server import s3_server
from sent_code import write_code, write_table
from test_two_processes import SERVING, becomes

from peerloom import Client
from peerloom.artifacts.transfer import digest_of, get_file
from peerloom.kit.dialing import Dialer

LIMIT_S = 100.0
pytestmark = pytest.mark.timeout(300)


def get_from(trainer: ServiceHandle, digest: str, target: Path) -> Path:
    """What the trainer itself gives, and no node."""

    async def get() -> None:
        async with Dialer().artifacts(trainer.address) as peer:
            await get_file(peer, digest, target)

    asyncio.run(get())
    return target


def test_what_a_trainer_kept_outlives_its_disk(start_service: StartService, tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'system.sqlite'}"
    with s3_server() as s3:
        s3.create_bucket(Bucket="models")
        registry = start_service("registry", "--database", database, "--state", str(tmp_path / "registry"))
        common = ("--database", database, "--registry", registry.address)
        start_service("selector", *common)

        def start_trainer(name: str) -> ServiceHandle:
            own = ("--state", str(tmp_path / name), "--artifacts", "s3://models/system")
            return start_service("trainer", *common, *own)

        first, second = start_trainer("first"), start_trainer("second")
        node = ("--state", str(tmp_path / "node"), "--registry", registry.address, "--slots", "2")
        start_service("node_agent", *node, PEERLOOM_NODE_ALLOW_CODE="true")
        with Client(registry.address, patience_s=LIMIT_S) as client:
            next(client.watch_nodes())
            put = client.artifacts.put
            data = put(write_table(tmp_path / "table.txt"), node="trainer", copies=1).digest
            sent = put(write_code(tmp_path / "code"), kind="code", node="trainer", copies=1).digest
            going = begin_patient_job(client, workers=1)
            followed = Followed(going.watch(), 1)
            followed.until_whole()
            made = client.train("digits", requests=1, max_workers=1, epochs=1).result(LIMIT_S)
            assert made.model is not None, made.reason
            model = made.model.digest
            before = get_from(first, model, tmp_path / "before")
            assert put(before, kind="model", node="trainer", copies=1).digest == model  # it is uploaded now

            first.kill()
            shutil.rmtree(tmp_path / "first")
            asyncio.run(becomes(second.address, SERVING))
            after = get_from(second, model, tmp_path / "after")
            assert digest_of(after) == model
            answer = client.infer(model, np.zeros((1, 1, 8, 8), np.float32), mode="remote")
            assert len(answer.outputs) == 1
            assert client.artifacts.where(data)[0].name == "trainer"
            job = client.train(
                "sent_along:Sent",
                requests=1,
                code=sent,
                arguments={"table": f"artifact:{data}"},
                batch_size=10,
            )
            result = job.result(LIMIT_S)
            assert result.succeeded, result.reason
            assert result.samples == 70
            assert going.cancel().state == "cancelled"
            followed.until_ended()
