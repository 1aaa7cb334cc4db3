"""What holds for every test run: nothing is skipped silently in CI, and no process outlives the run."""

import gc
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings
from origin.asking import EXEC, Origin, install, uninstall
from xdist.scheduler import LoadScopeScheduling

from peerloom.sandbox.cgroups import remove_left

# With CI=true, a skip is a failure unless its reason begins with one of these.
ALLOWED_SKIPS = ("needs an NVIDIA GPU", "needs cgroups")
SHARING_THE_MACHINE = ("tests/network/", "tests/gpu/", "tests/integration/test_readme_calls")
# Files with few and long tests, the longest first: whichever began last would run beside sides that are idle.
LONG = tuple(
    f"tests/integration/test_{name}.py"
    for name in (
        "tutorial",
        "fault_matrix",
        "attacks",
        "training_faults",
        "restarted_coordinators",
        "lying_workers",
    )
)
MARK = "PEERLOOM_TEST_RUN"
FAILURES = "PEERLOOM_TEST_FAILURES"
LEFT_LIMIT = "PEERLOOM_TEST_LEFT_LIMIT_S"  # how long processes may take to end after the last test
# Both sides of a run have threads of their own already: torch's would wait for a core, turning, at each sum.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A busy machine may take long for an example: a time says nothing here. All else is as hypothesis chose it.
settings.register_profile(
    "here", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("here")
# Helpers' assertions, too, say what they saw. Pytest does so by itself for tests and conftests alone.
HELPERS = {"simulation", *(path.stem for path in Path(__file__).parent.glob("*/**/[!_]*.py"))}
pytest.register_assert_rewrite(*HELPERS)


def pytest_configure(config: pytest.Config) -> None:
    """Ctrl-C is what it is at a terminal, also when the run was started by a script in the background."""
    config.option.loadscopereorder = False  # xdist would begin with the files of the most tests
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Fails a test that was skipped for a reason CI doesn't allow."""
    report = yield
    _forbid_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    """The same for a module that was skipped as a whole."""
    report = yield
    _forbid_skip(report)
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes each failure at once: a run that breaks off tells of none at its end."""
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        words = (crash.message if crash else str(report.longrepr)).strip().partition("\n")[0]
        _note(f"{report.nodeid} ({report.when}, {report.duration:.0f} s): {words[:200]}")


def pytest_internalerror(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """The same for what breaks a run off."""
    _note("pytest broke off: " + "\n".join(str(excinfo.value).splitlines()[-5:]))


def _note(words: str) -> None:
    """Appends to the file that FAILURES names, with what the machine had left."""
    file = os.environ.get(FAILURES)
    if not file or "PYTEST_XDIST_WORKER" in os.environ:  # the sides tell the one that deals out the tests
        return
    disk_gb = shutil.disk_usage(tempfile.gettempdir()).free / 1e9
    memory_gb = psutil.virtual_memory().available / 1e9
    left = f"{disk_gb:.1f} GB of disk and {memory_gb:.1f} GB of memory were free"
    with suppress(OSError), Path(file).open("a") as notes:
        notes.write(f"{words}\n  {left}\n")


def _forbid_skip(report: Any) -> None:
    if os.environ.get("CI") != "true" or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = str(report.longrepr[2]).removeprefix("Skipped: ")
    if not reason.startswith(ALLOWED_SKIPS):
        report.outcome = "failed"
        report.longrepr = f"skipped, but CI should have what it needs: {reason}"


class _OneFileOneSide(LoadScopeScheduling):
    """Keeps the tests of one file, and all that use the machine's own ports and networks, on one side.

    xdist's own groups can't say it: it writes them into test ids, which pytest 9.2 no longer lets it change.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        if file.startswith("tests/simulation/"):
            return nodeid  # histories share nothing, so they are spread
        return "machine" if file.startswith(SHARING_THE_MACHINE) else file


def pytest_collection_finish() -> None:
    """Keeps the garbage collector, a sixth of the unit tests' time, from what stays: imports and tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)  # a test makes thousands of objects


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first: the row of tests that share the machine, then the files of LONG."""
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    file = item.nodeid.split("::", 1)[0]
    if item.nodeid.startswith(SHARING_THE_MACHINE):
        return 0
    return 1 + (LONG.index(file) if file in LONG else len(LONG))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Says how the tests are dealt out to the sides that run at once."""
    return _OneFileOneSide(config, log)


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fails the run when a process that it started, also an orphaned one, is still there at its end."""
    token = secrets.token_hex(8)
    os.environ[MARK] = token
    # Each trainer would import torch, 2 s of a core: those whose evaluations are tested say "auto".
    os.environ.setdefault("PEERLOOM_TRAINER_EVALUATE", "off")
    yield
    # Whoever was just importing its libraries hears of the end of its lifeline after that.
    _, left = psutil.wait_procs(_started_by(token), timeout=float(os.environ.get(LEFT_LIMIT, "60")))
    names = [_describe(process) for process in left]
    for note in tmp_path_factory.getbasetemp().rglob("cgroups"):  # of agents that a test killed
        remove_left(note)
    for process in left:
        process.kill()
    assert not names, "the tests left processes behind:\n" + "\n".join(names)


@pytest.fixture(scope="session", autouse=True)
def processes_are_forked(no_process_is_left: None) -> Iterator[None]:
    """What `subprocess` starts of Peerloom is forked from a process that has imported it: tests/origin."""
    origin = Origin()
    install(origin)
    yield
    uninstall()
    origin.close()


@pytest.fixture
def processes_are_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a test starts begins with the interpreter, as it does for users: for tests of starting."""
    monkeypatch.setenv(EXEC, "1")


def _started_by(token: str) -> list[psutil.Process]:
    # Children inherit the environment, so this finds also those whose parent has died.
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == token:
                found.append(process)
        except psutil.Error:
            continue
    return found


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:300]}"
    except psutil.Error:
        return f"{process.pid} (just ended)"
