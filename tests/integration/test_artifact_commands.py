"""`peerloom artifacts` and `client.artifacts` against a whole system, also with what can't be."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from exchange_parts import MIB, bytes_of, digest_of_bytes

from peerloom import Client, Embedded
from peerloom.cli.main import cli
from peerloom.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError

CONTENT = bytes_of(21, 3 * MIB)
DIGEST = digest_of_bytes(CONTENT)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with Embedded(tmp_path_factory.mktemp("system"), (0, 0, 0)) as started:
        yield started


@pytest.fixture
def client(system: Embedded) -> Iterator[Client]:
    with Client(system.address) as opened:
        yield opened


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "weights.bin"
    path.write_bytes(CONTENT)
    return path


def run(system: Embedded, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["artifacts", arguments[0], "--address", system.address, *arguments[1:]])


def test_a_file_with_a_hole_of_terabytes_is_refused_before_it_is_read(
    system: Embedded, tmp_path: Path
) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate((1 << 40) + 1)
    put = run(system, "put", str(tmp_path / "sparse"))
    assert put.exit_code == 2
    assert "at most 1,099,511,627,776 bytes long" in put.output


def test_the_commands_from_put_to_rm(system: Embedded, source: Path, tmp_path: Path) -> None:
    put = run(system, "put", str(source), "--kind", "model", "--copies", "2")
    assert put.stdout.strip() == DIGEST, put.output
    listed: list[dict[str, Any]] = json.loads(run(system, "list", "-o", "json").stdout)
    kept = next(one for one in listed if one["digest"] == DIGEST)
    assert (kept["name"], kept["kind"], len(kept["holders"]), kept["maker"]) == (
        "weights.bin",
        "model",
        2,
        "user",
    )

    shown = json.loads(run(system, "show", DIGEST[:10], "-o", "json").stdout)
    assert (shown["chunk_bytes"], len(shown["chunk_digests"])) == (MIB, 3)
    assert "3 chunks" in run(system, "show", DIGEST).stdout
    where = json.loads(run(system, "where", DIGEST, "-o", "json").stdout)
    assert [one["name"] for one in where] == kept["holders"]

    got = run(system, "get", DIGEST[:10], str(tmp_path / "copy"))
    assert got.exit_code == 0, got.output
    assert (tmp_path / "copy").read_bytes() == CONTENT

    assert run(system, "pin", DIGEST).exit_code == 0
    refused = run(system, "rm", DIGEST)
    assert refused.exit_code == 2
    assert "Unpin it first" in refused.output
    assert run(system, "unpin", DIGEST).exit_code == 0
    assert run(system, "rm", DIGEST).exit_code == 0
    gone = run(system, "get", DIGEST, str(tmp_path / "again"))
    assert gone.exit_code == 3
    assert "Nobody holds" in gone.output


def test_what_cannot_be_is_refused_in_clear_words(client: Client, source: Path, tmp_path: Path) -> None:
    kept = client.artifacts.put(source, copies=1)
    with pytest.raises(NotFoundError, match="Did you mean"):
        client.artifacts.show(DIGEST[:11] + ("0" if DIGEST[11] != "0" else "1"))
    with pytest.raises(InvalidArgumentError, match="kind"):
        client.artifacts.put(source, kind="pickle")
    with pytest.raises(InvalidArgumentError, match="a file or folder that exists"):
        client.artifacts.put(tmp_path / "nothing")
    with pytest.raises(NotFoundError, match="There is no node"):
        client.artifacts.put(source, node="nobody")
    client.artifacts.pin(DIGEST, node=kept.holders[0])
    with pytest.raises(FailedPreconditionError, match="pinned here"):
        client.artifacts.rm(DIGEST)
    client.artifacts.unpin(DIGEST)
    assert client.artifacts.rm(DIGEST) == kept.holders


def test_a_model_has_a_name_and_versions() -> None:
    """Hand-made list: two versions of one name, one of another; a name alone means the newest."""
    from peerloom.client.models import pick_version
    from peerloom.client.types import Model

    def model(name: str, version: int) -> Model:
        return Model(f"{version:064x}", 1, name, version, f"job-{version}", "digits", None, None, None)

    known = [model("digits", 2), model("other", 1), model("digits", 1)]
    for reference, found in (("digits", 2), ("digits:latest", 2), ("digits:1", 1), ("digits:2", 2)):
        picked = pick_version(reference, known)
        assert picked is not None
        assert (picked.name, picked.version) == ("digits", found)
    assert pick_version("abc", known) is None
    with pytest.raises(NotFoundError, match="Did you mean digits:2 or digits:1"):
        pick_version("digits:7", known)
    with pytest.raises(NotFoundError, match="Did you mean digits:2"):
        pick_version("digit:2", known)


def test_a_registry_that_cannot_be_reached_is_no_empty_list() -> None:
    done = CliRunner().invoke(cli, ["artifacts", "list", "--address", "127.0.0.1:1"])
    assert done.exit_code == 4
    assert "The registry at 127.0.0.1:1 can't be reached" in done.stderr
