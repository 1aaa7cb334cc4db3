"""A script's interpreter waits for gloo's threads before it ends; nothing else of it changes."""

import os
import subprocess
import sys
from pathlib import Path

from peerloom.worker.script import ending
from peerloom.worker.script.ending import with_ending

# A thread by the name of gloo's, which does WORK.
GLOO = """
import hashlib, threading, time

def work():
    open("/proc/thread-self/comm", "w").write("pt_gloo_runloop")
    named.set()
    WORK

named = threading.Event()
threading.Thread(target=work, daemon=True).start()
named.wait()
"""
# Without the interpreter's lock, which it needs then.
BUSY = GLOO.replace("WORK", "hashlib.pbkdf2_hmac('sha256', b'', b'', 500_000); open('over', 'w').close()")
# And no limit of time is ever reached.
SLEEPS = GLOO.replace("WORK", "threading.Event().wait()") + "time.monotonic = lambda: 0.0"


def started(script: str, folder: Path, path: str = "") -> str:
    """What the script prints, run in the folder as a script's process with this PYTHONPATH."""
    ended = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env=with_ending({**os.environ, "PYTHONPATH": path}),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stderr == ""
    return ended.stdout


def test_a_thread_of_gloo_that_is_at_work_is_waited_for(tmp_path: Path) -> None:
    started(BUSY, tmp_path)
    assert (tmp_path / "over").exists()


def test_one_that_sleeps_is_not(tmp_path: Path) -> None:
    """It would wait for ever for its next collective; the interpreter's end takes it."""
    started(SLEEPS, tmp_path)


def test_a_sitecustomize_of_the_user_s_is_imported_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('customised')")
    script = "import sys, sitecustomize; print(sitecustomize.__file__, *sys.path)"
    customised, found = started(script, tmp_path, str(tmp_path)).splitlines()
    assert customised == "customised"
    assert found.split()[0] == str(tmp_path / "sitecustomize.py")
    assert str(Path(ending.__file__).parent) not in found


def test_without_one_the_folder_leaves_no_trace_on_the_path(tmp_path: Path) -> None:
    assert str(Path(ending.__file__).parent) not in started("import sys; print(*sys.path)", tmp_path)
