"""What a service keeps is its user's alone: keys, jobs, models and what workers printed."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from peerloom.errors import ConfigurationError
from peerloom.kit.state_folder import make_private


def open_to_others(folder: Path) -> list[str]:
    """All that has a bit for the group or others."""
    found = [folder, *folder.rglob("*")]
    return sorted(str(path.relative_to(folder)) for path in found if path.lstat().st_mode & 0o077)


@pytest.fixture
def world_readable() -> Any:
    """As most users have it."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_what_was_left_readable_is_taken_back_and_nothing_else_is_touched(
    tmp_path: Path, world_readable: None
) -> None:
    state = tmp_path / "state"
    for name in ("artifacts/a", "logs/job/worker.log", "registry.sqlite", "node.json", "my/own.txt"):
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_text("x")
    (tmp_path / "elsewhere").write_text("x")
    (state / "logs" / "link").symlink_to(tmp_path / "elsewhere")
    make_private(state)
    modes = {name: stat.S_IMODE((state / name).stat().st_mode) for name in ("", "logs/job", "artifacts/a")}
    assert modes == {"": 0o700, "logs/job": 0o700, "artifacts/a": 0o600}
    assert set(open_to_others(state)) == {"logs/link", "my", "my/own.txt"}
    assert stat.S_IMODE((tmp_path / "elsewhere").stat().st_mode) == 0o644


def test_a_folder_that_all_users_share_is_no_state_folder(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(ConfigurationError, match="one that all users share"):
        make_private(shared)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777


@pytest.mark.parametrize("service", ["registry", "selector", "trainer", "node_agent"])
def test_each_services_files_are_its_users_alone(
    service: str, start_service: Any, tmp_path: Path, world_readable: None
) -> None:
    """Also in a folder that was made readable before."""
    (tmp_path / "state").mkdir()
    arguments = () if service == "registry" else ("--registry", "127.0.0.1:9")
    start_service(service, "--state", str(tmp_path / "state"), *arguments)
    assert any((tmp_path / "state").iterdir())
    assert open_to_others(tmp_path / "state") == []
