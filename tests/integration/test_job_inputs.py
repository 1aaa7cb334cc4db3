"""A job brings its data set and its code as artifacts; code runs only where the owner allows it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sent_code import write_code, write_table
from test_data_sets import write_mnist

from peerloom import Client, Embedded
from peerloom.errors import NotFoundError

LIMIT_S = 100.0


@pytest.fixture(scope="module")
def open_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a system whose two nodes run code that jobs bring along."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PEERLOOM_NODE_ALLOW_CODE", "true")
        system = Embedded(tmp_path_factory.mktemp("system"), (1, 1))
        with system, Client(system.address) as client:
            yield client


@pytest.fixture
def code(tmp_path: Path) -> Path:
    return write_code(tmp_path / "code")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "table.txt")


def test_code_and_data_reach_nodes_that_have_neither(open_client: Client, code: Path, table: Path) -> None:
    kept = open_client.artifacts.put(table, copies=1)
    arguments = {"table": f"artifact:{kept.digest[:12]}"}
    job = open_client.train("sent_along:Sent", requests=2, code=code, arguments=arguments, batch_size=10)
    result = job.result(LIMIT_S)
    assert result.succeeded, result.reason
    assert result.samples == 70
    spec = job.status().spec
    assert spec.arguments == {"table": f"artifact:{kept.digest}"}
    assert {one.name for one in open_client.artifacts.where(spec.code)} >= {"node-1", "node-2"}


def test_a_folder_of_data_is_a_folder_on_the_nodes(open_client: Client, tmp_path: Path) -> None:
    data = tmp_path / "digits"
    data.mkdir()
    for part, count in (("train", 40), ("t10k", 10)):
        write_mnist(data, part, count)
    kept = open_client.artifacts.put(data)
    job = open_client.train("mnist", requests=2, epochs=1, arguments={"data": f"artifact:{kept.digest}"})
    result = job.result(LIMIT_S)
    assert result.succeeded, result.reason
    assert result.samples == 40


def test_nodes_refuse_code_unless_their_owner_allows_it(
    tmp_path: Path, code: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PEERLOOM_NODE_ALLOW_CODE", raising=False)
    with Embedded(tmp_path / "system", (1,)) as system, Client(system.address) as client:
        kept = client.artifacts.put(table)
        arguments = {"table": f"artifact:{kept.digest}"}
        job = client.train("sent_along:Sent", code=code, arguments=arguments)
        assert job.result(LIMIT_S).state == "no_compute"
        assert "runs only what is installed there" in job.status().answers[0].reason
        with pytest.raises(NotFoundError, match="artifact"):
            client.train("digits", code="nowhere")
        with pytest.raises(NotFoundError):
            client.train("mnist", arguments={"data": f"artifact:{'0' * 64}"})
