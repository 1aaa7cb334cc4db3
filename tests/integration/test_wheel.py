"""What a user gets: the wheel in an empty environment, where each service starts without torch."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import venv
import zipfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LIMIT_S = 60.0
# Building and installing take longer than a test usually may.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing that an earlier build left here can get into it."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "services"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, cwd=source)
    (built,) = out.iterdir()
    return built


@pytest.fixture(scope="module", params=["tested", "oldest"])
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that holds the wheel and what it asks for, nothing else.

    Once all in the versions that are tested everywhere, once what other libraries in an environment are most
    likely to hold back in the oldest version that the wheel allows.

    What it asks for is linked from this environment, where it is in the versions of constraints.txt: to bring
    and unpack it anew would take a minute and show nothing of the wheel. pip then says whether all is there.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (site,) = (folder / "lib").glob("python*/site-packages")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", folder / "bin" / "python")
    run(*pip, "install", "--quiet", "--no-deps", wheel)
    lines = (ROOT / "constraints.txt").read_text().split()
    pinned = {canonicalize_name(n): v for n, is_pin, v in (line.partition("==") for line in lines) if is_pin}
    if request.param == "oldest":
        run(*pip, "install", "--quiet", *oldest_allowed(site))
    for name in sorted(wanted_in(site) - installed_in(site)):
        found = metadata.distribution(name)
        assert found.version == pinned[name], name
        link(found, site)
    assert run(*pip, "check") == "No broken requirements found.\n"
    return folder / "bin"


def asked_by_wheel(site: Path) -> list[Requirement]:
    (peerloom,) = metadata.distributions(name="peerloom", path=[str(site)])
    return asked_by(peerloom)


def installed_in(site: Path) -> set[str]:
    return {canonicalize_name(each.name) for each in metadata.distributions(path=[str(site)])}


def oldest_allowed(site: Path) -> list[str]:
    """gRPC, protobuf and rich at the lower ends of their ranges, as pip wants it said."""
    wide = [each for each in asked_by_wheel(site) if each.name.startswith(("grpcio", "protobuf", "rich"))]
    assert len(wide) == 6, wide
    return [f"{each.name}=={one.version}" for each in wide for one in each.specifier if one.operator == ">="]


def wanted_in(site: Path) -> set[str]:
    """The names of all that the installed wheel asks for, and what that asks for, without optional parts."""
    found, left = set[str](), asked_by_wheel(site)
    while left:
        wanted = left.pop()
        name = canonicalize_name(wanted.name)
        if name not in found:
            found.add(name)
            left += asked_by(metadata.distribution(name), wanted.extras)
    return found


def asked_by(asker: metadata.Distribution, extras: Collection[str] = ()) -> list[Requirement]:
    """The requirements that hold on this machine."""
    wanted = [Requirement(text) for text in asker.requires or []]
    chosen = [{"extra": extra} for extra in ("", *extras)]
    return [each for each in wanted if each.marker is None or any(map(each.marker.evaluate, chosen))]


def link(distribution: metadata.Distribution, site: Path) -> None:
    """Puts its modules into another environment; not its programs, which would run in this one."""
    for file in distribution.files or []:
        if ".." not in file.parts:
            there = site / file
            there.parent.mkdir(parents=True, exist_ok=True)
            there.symlink_to(Path(str(file.locate())))


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Runs a command outside of our own environment; its output goes into the failure."""
    done = subprocess.run(command, cwd=cwd, env=clean_environment(), capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


@contextmanager
def service(program: Path, cwd: Path, name: str, *arguments: str) -> Iterator[str]:
    """Runs `peerloom NAME` until it is healthy, yields its address, then stops it gracefully."""
    log_path = cwd / f"{name}.log"
    command = [program, name, "--state", cwd / name, "--listen", "127.0.0.1:0", *arguments]
    with (
        log_path.open("wb") as log,
        subprocess.Popen(
            command, cwd=cwd, env=clean_environment(), stdout=subprocess.PIPE, stderr=log
        ) as process,
    ):
        assert process.stdout is not None
        try:
            readable, _, _ = select.select([process.stdout], [], [], LIMIT_S)
            line = process.stdout.readline().decode().strip() if readable else ""
            assert line.startswith("address="), log_path.read_text()
            wait_until_healthy(line.removeprefix("address="))
            yield line.removeprefix("address=")
            process.send_signal(signal.SIGTERM)
            assert process.wait(LIMIT_S) == 0, log_path.read_text()
        finally:
            process.kill()


def wait_until_healthy(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for answer in stub.Watch(health_pb2.HealthCheckRequest(), timeout=LIMIT_S):
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return
    pytest.fail(f"{address} never became healthy")


def test_the_wheel_holds_the_package_and_nothing_beside_it(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"peerloom"}
    assert [name for name in names if "__pycache__" in name or "/tests/" in name] == []


def test_the_wheel_holds_all_that_is_no_module_too(wheel: Path) -> None:
    """Every file of the package in the repository is in the wheel: modules, types and migrations alike."""
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = [(ROOT / "src" / "peerloom", "peerloom"), (ROOT / "services", "peerloom/services")]
    missing = [
        f"{prefix}/{path.relative_to(folder)}"
        for folder, prefix in expected
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
        if f"{prefix}/{path.relative_to(folder)}" not in names
    ]
    assert missing == []
    assert {"peerloom/py.typed", "peerloom/services/registry/migrations/0001_first.py"} <= names


def test_the_environment_has_no_torch_and_one_new_top_level_package(installed: Path) -> None:
    (site,) = (installed.parent / "lib").glob("python*/site-packages")
    assert (site / "peerloom").is_dir()
    assert [name for name in ("torch", "services", "tests", "benchmarks") if (site / name).exists()] == []


def test_the_services_start_find_each_other_and_stop(installed: Path, tmp_path: Path) -> None:
    """All four in an environment without torch: only a worker process needs that."""
    program = installed / "peerloom"
    with ExitStack() as stack:
        registry = stack.enter_context(service(program, tmp_path, "registry"))
        there = ("--registry", registry)
        stack.enter_context(service(program, tmp_path, "selector", *there))
        stack.enter_context(service(program, tmp_path, "trainer", *there))
        node = ("--name", "alpha", "--slots", "0")
        stack.enter_context(service(program, tmp_path, "node", *there, *node))
        listed = run(program, "--address", registry, "nodes", "list", "-o", "json", cwd=tmp_path)
        assert [(found["name"], found["state"]) for found in json.loads(listed)] == [("alpha", "alive")]


def test_the_sdk_imports_and_tells_its_version(wheel: Path, installed: Path, tmp_path: Path) -> None:
    shown = run(installed / "python", "-c", "import peerloom; print(peerloom.__version__)", cwd=tmp_path)
    assert f"peerloom-{shown.strip()}-" in wheel.name


def test_a_system_in_memory_trains_without_torch_and_pytest(installed: Path, tmp_path: Path) -> None:
    script = (
        "from peerloom.testing import InMemorySystem\n"
        "with InMemorySystem(nodes=1) as system, system.client() as client:\n"
        "    print(client.train('digits', epochs=1).result().succeeded)\n"
    )
    assert run(installed / "python", "-c", script, cwd=tmp_path) == "True\n"
