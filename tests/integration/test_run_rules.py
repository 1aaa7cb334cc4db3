"""The rules of a test run itself (tests/conftest.py), tried on small runs of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"


def run_tests(folder: Path, text: str, **environment: str) -> tuple[int, str]:
    """Runs one test file under our conftest; returns pytest's exit status and output."""
    (folder / "conftest.py").write_text(CONFTEST.read_text())
    (folder / "test_it.py").write_text("import pytest, subprocess, sys\n" + text)
    inherited = {name: value for name, value in os.environ.items() if name != "CI"}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(folder),
            str(folder),
        ],
        env={**inherited, "PYTHONPATH": str(CONFTEST.parent), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout


SKIPS = {
    "in the test": "def test_it():\n    pytest.skip('{}')",
    "by a mark": "@pytest.mark.skipif(True, reason='{}')\ndef test_it(): pass",
    "in a fixture": "@pytest.fixture\ndef part():\n    pytest.skip('{}')\ndef test_it(part): pass",
    "as a module": "pytest.skip('{}', allow_module_level=True)\ndef test_it(): pass",
}


@pytest.mark.parametrize("skip", SKIPS.values(), ids=SKIPS)
def test_ci_fails_on_a_skip(tmp_path: Path, skip: str) -> None:
    status, shown = run_tests(tmp_path, skip.format("needs openssl"), CI="true")
    assert status != 0
    assert "CI should have what it needs: needs openssl" in shown


def test_ci_lets_a_listed_skip_pass(tmp_path: Path) -> None:
    status, shown = run_tests(tmp_path, SKIPS["by a mark"].format("needs an NVIDIA GPU here"), CI="true")
    assert (status, "1 skipped" in shown) == (0, True)


def test_a_skip_is_fine_outside_ci(tmp_path: Path) -> None:
    assert run_tests(tmp_path, SKIPS["in the test"].format("needs openssl"))[0] == 0


def test_an_expected_failure_is_no_skip(tmp_path: Path) -> None:
    text = "@pytest.mark.xfail(reason='known')\ndef test_it(): assert False"
    assert run_tests(tmp_path, text, CI="true")[0] == 0


@pytest.mark.parametrize("orphaned", [False, True], ids=["a child", "an orphan"])
def test_a_process_that_is_left_fails_the_run_and_is_named(tmp_path: Path, orphaned: bool) -> None:
    """An orphan is one whose parent has ended: only its environment tells where it came from."""
    left = "[sys.executable, '-c', 'import signal; signal.pause()  # left over']"
    text = f"def test_it():\n    subprocess.Popen({left})"
    if orphaned:
        middle = f"import subprocess, sys; subprocess.Popen({left})"
        text = f"def test_it():\n    subprocess.run([sys.executable, '-c', {middle!r}], check=True)"
    status, shown = run_tests(tmp_path, text, PEERLOOM_TEST_LEFT_LIMIT_S="1")
    assert status != 0
    assert "the tests left processes behind" in shown
    assert "left over" in shown
