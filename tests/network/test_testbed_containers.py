"""Hosts as containers: the same training, locked in, and gone afterwards."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compose_stack import require_daemon
from testbed_parts import (
    assert_equal,
    bare_image,
    parameters_without_network,
    plan_of,
    reaches,
    require,
    train_inside,
)

from peerloom.errors import FailedPreconditionError
from peerloom.testbed import Testbed
from peerloom.testbed.names import Names

pytestmark = [pytest.mark.network, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def containers() -> Iterator[dict[str, Any]]:
    require()
    with bare_image() as settings:
        yield {**settings, "memory": "2GB", "pids": 300}


def containers_of(its: Names) -> list[Any]:
    import docker

    engine = docker.from_env()
    try:
        return list(engine.containers.list(all=True, filters={"label": f"peerloom.testbed={its.token}"}))
    finally:
        engine.close()


def test_two_containers_train_what_two_processes_train_and_are_locked_in(
    containers: dict[str, Any], tmp_path: Path
) -> None:
    plan = plan_of(2, isolation="container", containers=containers)
    with Testbed(plan, tmp_path / "testbed") as testbed:
        _, parameters = train_inside(testbed, requests=2)
        assert reaches(testbed, "host-1", "host-2")
        found = {one.name: one for one in containers_of(testbed.names)}
        assert len(found) == 4
        for container in found.values():
            limits = container.attrs["HostConfig"]
            assert limits["CapDrop"] == ["ALL"]
            assert limits["SecurityOpt"] == ["no-new-privileges"]
            assert limits["ReadonlyRootfs"] is True
            assert not limits["Privileged"]
            assert limits["Memory"] > 0
            assert limits["PidsLimit"] > 0
            assert container.attrs["Config"]["User"] == "65534:65534"
        anchor = found[testbed.names.anchor("host-1")]
        assert anchor.attrs["HostConfig"]["NetworkMode"] == "none"
        # From outside: what docker exec prints is lost now and then (docker-py's issues 2042 and 3332).
        pid = found[testbed.names.container("host-1")].attrs["State"]["Pid"]
        interfaces = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
        assert sorted(line.split(":")[0].strip() for line in interfaces) == ["eth0", "lo"]
        its = testbed.names
    assert containers_of(its) == []
    assert_equal(parameters, parameters_without_network(tmp_path / "alone", workers=2))


def test_an_image_that_is_not_there_is_told_before_anything_is_made(tmp_path: Path) -> None:
    require()
    require_daemon().close()
    plan = plan_of(1, isolation="container", containers={"image": "peerloom-nowhere:latest"})
    with pytest.raises(FailedPreconditionError, match="no image peerloom-nowhere:latest"):
        Testbed(plan, tmp_path / "testbed").start()
    assert not (tmp_path / "testbed").exists()


def test_a_container_that_cannot_run_is_told_and_removed(containers: dict[str, Any], tmp_path: Path) -> None:
    plan = plan_of(1, isolation="container", containers={**containers, "python": "/no/python"})
    testbed = Testbed(plan, tmp_path / "testbed")
    with pytest.raises(FailedPreconditionError, match="/no/python"):
        testbed.start()
    assert containers_of(testbed.names) == []
