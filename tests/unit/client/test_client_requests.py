"""What a user asks for: the message it becomes, and refusals by the names the user typed."""

import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from peerloom import AsyncClient, AsyncJobHandle, Client, JobEvent, JobHandle, JobSpec
from peerloom.client.address import Address
from peerloom.client.artifacts import Artifacts, AsyncArtifacts
from peerloom.client.conversions.jobs import spec_of
from peerloom.client.models import pick_digest
from peerloom.client.network import AsyncNetwork
from peerloom.client.remote_services import Services
from peerloom.client.requests import job_spec, job_states, node_states
from peerloom.errors import InvalidArgumentError, NotFoundError
from peerloom.v1 import trainer_pb2

NOWHERE = Services(Address("127.0.0.1:1", "the test"), "")


async def spec(**given: Any) -> trainer_pb2.JobSpec:
    """The message of `Client.train`'s arguments, none of which needs an artifact."""
    return await job_spec(JobSpec("digits", **given), AsyncArtifacts(NOWHERE))


async def test_what_was_not_given_stays_unset() -> None:
    message = await spec()
    for field in ("epochs", "batch_size", "learning_rate", "request_budget", "min_workers", "max_workers"):
        assert not message.HasField(field), field
    assert message.requirements.min_slots == 1
    assert message.backend == trainer_pb2.BACKEND_UNSPECIFIED


GIVEN: dict[str, Any] = {
    "requests": 5,
    "epochs": 2,
    "batch_size": 64,
    "learning_rate": 0.1,
    "policy": "random",
    "seed": 7,
    "min_workers": 2,
    "max_workers": 4,
    "backend": "nccl",
    "name": "mine",
    "initial_model": "ab" * 32,
    "min_slots": 0,
    "robust": "krum",
    "sync": "schedule=wfbp,topology=direct,codec=none",
    "accelerator": "cuda",
    "labels": {"room": "7"},
    "arguments": {"data": "/d"},
}


async def test_what_was_given_arrives_and_comes_back() -> None:
    message = await spec(**GIVEN)
    assert (message.request_budget, message.epochs, message.batch_size, message.seed) == (5, 2, 64, 7)
    assert (message.learning_rate, message.min_workers, message.max_workers) == (0.1, 2, 4)
    assert (message.backend, message.policy, message.name) == (trainer_pb2.BACKEND_NCCL, "random", "mine")
    assert message.initial_model_digest == "ab" * 32
    assert message.requirements.min_slots == 0
    assert message.requirements.accelerator_kind == "cuda"
    assert dict(message.requirements.labels) == {"room": "7"}
    assert dict(message.task_arguments) == {"data": "/d"}
    assert spec_of(message) == JobSpec("digits", **GIVEN)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("requests", -1),
        ("requests", 1001),
        ("epochs", 0),
        ("epochs", 1_000_001),
        ("batch_size", 0),
        ("min_workers", 0),
        ("max_workers", 2**32),
        ("min_slots", -1),
        ("seed", -1),
        ("seed", 2**64),
        ("learning_rate", 0.0),
        ("learning_rate", -0.1),
        ("learning_rate", float("nan")),
        ("learning_rate", float("inf")),
        ("backend", "nvlink"),
        ("robust", "trimmed_mean"),
        ("sync", "wfbp-a2b"),
        ("sync", "topology=ring,codec=int8"),
    ],
)
async def test_a_value_outside_its_limits_is_refused_by_its_name(field: str, wrong: object) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{field} is ") as caught:
        await spec(**{field: wrong})
    assert caught.value.metadata["field"] == field


def test_states_are_words() -> None:
    assert node_states(["alive", "dead"]) == [1, 3]
    assert job_states(["no_compute"]) == [trainer_pb2.JOB_STATE_NO_COMPUTE]


def test_an_unknown_state_gets_the_nearest_one() -> None:
    with pytest.raises(InvalidArgumentError, match="did you mean running"):
        job_states(["runing"])


def test_a_digest_is_known_by_its_beginning() -> None:
    assert pick_digest("ab", ["abcd", "acde"]) == "abcd"
    assert pick_digest("ab", ["abcd", "abcd"]) == "abcd"  # two jobs may leave the same model


def test_a_beginning_that_two_models_share_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="abcd, abce"):
        pick_digest("abc", ["abcd", "abce"])


@pytest.mark.parametrize("beginning", ["", "ff"])
def test_a_beginning_that_no_model_has_is_not_found(beginning: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        pick_digest(beginning, ["abcd"])
    assert caught.value.reason == "MODEL_NOT_FOUND"


@pytest.mark.parametrize(
    ("face", "core"),
    [
        (Client, AsyncClient),
        (Client, AsyncNetwork),
        (JobHandle, AsyncJobHandle),
        (Artifacts, AsyncArtifacts),
    ],
)
def test_the_sync_face_has_all_that_the_core_has(face: type, core: type) -> None:
    """Method by method, with the same parameters, defaults and documentation."""
    for name, method in vars(core).items():
        if name.startswith("_") or not callable(method):
            continue
        ours = inspect.signature(getattr(face, name)).parameters
        assert list(ours.items()) == list(inspect.signature(method).parameters.items()), name
        assert getattr(face, name).__doc__ == method.__doc__ or name == "close"


class Kept(AsyncArtifacts):
    """Puts everything in under one digest."""

    def __init__(self) -> None:
        pass

    async def put(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(digest="c" * 64)


async def test_a_script_is_a_task_with_its_path_and_arguments_and_comes_back_as_it_was(
    tmp_path: Path,
) -> None:
    script = tmp_path / "code" / "Fine tuning.py"
    script.parent.mkdir()
    script.write_text("")
    asked = JobSpec(str(script), code=script.parent, script_arguments=("--lr", "0.1", "a b"), seed=4)
    message = await job_spec(asked, Kept())
    assert (message.name, message.code_digest, message.seed) == ("fine-tuning", "c" * 64, 4)
    assert not message.HasField("script"), "torchrun's are others"
    told = spec_of(message)
    assert (told.task, told.script_arguments) == ("Fine tuning.py", asked.script_arguments)
    assert told.arguments == {}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"epochs": 3}, "epochs"),
        ({"batch_size": 8}, "batch_size"),
        ({"learning_rate": 0.1}, "learning_rate"),
        ({"arguments": {"a": "b"}}, "arguments"),
        ({"script_arguments": ["\udcff"]}, "script_arguments"),
    ],
)
async def test_what_a_script_says_itself_is_not_asked_of_the_job(
    tmp_path: Path, given: dict[str, Any], field: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    with pytest.raises(InvalidArgumentError, match=field):
        await job_spec(JobSpec(str(script), **given), Kept())


async def test_only_a_script_has_arguments_of_its_own() -> None:
    with pytest.raises(InvalidArgumentError, match="script_arguments"):
        await spec(script_arguments=["--lr"])


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_train_shows_its_arguments_with_their_defaults(client: type) -> None:
    """They stand in JobSpec only."""
    shown = inspect.signature(client.train).parameters
    assert list(shown) == ["self", *(field.name for field in dataclasses.fields(JobSpec))]
    assert (shown["task"].kind, shown["epochs"].kind) == (
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    )
    assert (shown["min_slots"].default, shown["backend"].default) == (1, "auto")


def test_sync_methods_give_what_the_core_s_coroutines_give() -> None:
    assert inspect.signature(Client.train).return_annotation is JobHandle
    assert inspect.signature(AsyncClient.train).return_annotation is AsyncJobHandle
    assert inspect.signature(JobHandle.watch).return_annotation == Iterator[JobEvent]
