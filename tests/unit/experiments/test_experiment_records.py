"""Of which code an experiment's result says that it is."""

import subprocess
from pathlib import Path

from peerloom.experiments.records import commit


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    told = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return told.stdout.strip()


def test_a_result_names_the_commit_of_its_code_and_whether_that_was_changed(tmp_path: Path) -> None:
    package = tmp_path / "src" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "__init__.py").write_text("")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    head = git(tmp_path, "rev-parse", "--short=12", "HEAD")
    assert commit(package) == head
    (tmp_path / "services" / "__init__.py").write_text("changed = True\n")
    assert commit(package) == f"{head}+changes"


def test_code_that_git_does_not_keep_is_of_no_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-qm", "somebody else's", "--allow-empty")
    installed = tmp_path / "site-packages" / "package"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert commit(installed) is None
    assert commit(tmp_path / "nowhere") is None
