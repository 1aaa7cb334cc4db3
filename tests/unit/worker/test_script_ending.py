"""A script's interpreter leaves gloo's threads time before it ends; nothing else of it changes."""

import os
import subprocess
import sys
from pathlib import Path

from peerloom.worker.script import ending
from peerloom.worker.script.ending import with_ending

# Says what it waits for as it ends, instead of waiting.
ENDS = """
import atexit, sys, time

time.sleep = lambda seconds: print("pauses for", seconds)
atexit.register(print, "its own end")
"""


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


def test_what_may_have_threads_of_gloo_pauses_after_all_that_it_does_itself(tmp_path: Path) -> None:
    with_torch = ENDS + "sys.modules['torch.distributed'] = sys"
    assert started(with_torch, tmp_path).splitlines() == ["its own end", "pauses for 0.25"]


def test_what_has_none_ends_at_once(tmp_path: Path) -> None:
    assert started(ENDS, tmp_path).splitlines() == ["its own end"]


def test_a_sitecustomize_of_the_user_s_is_imported_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('customised')")
    script = "import sys, sitecustomize; print(sitecustomize.__file__, *sys.path)"
    customised, found = started(script, tmp_path, str(tmp_path)).splitlines()
    assert customised == "customised"
    assert found.split()[0] == str(tmp_path / "sitecustomize.py")
    assert str(Path(ending.__file__).parent) not in found


def test_without_one_the_folder_leaves_no_trace_on_the_path(tmp_path: Path) -> None:
    assert str(Path(ending.__file__).parent) not in started("import sys; print(*sys.path)", tmp_path)
