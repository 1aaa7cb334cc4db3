"""The docs site: built from the pages as they are, whole, and read in a browser without network or server."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PAGE_LIMIT_MS
from playwright.sync_api import Browser, expect

DOCS = Path(__file__).parents[2] / "docs"
CHROMIUM = shutil.which("chromium")


def run(program: str, out: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(DOCS / program), str(out)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, as `make docs` builds it."""
    out = tmp_path_factory.mktemp("docs")
    done = run("build_site.py", out)
    assert done.returncode == 0, done.stderr
    return out


def test_it_is_whole(built: Path) -> None:
    done = run("check_site.py", built)
    assert done.returncode == 0, done.stderr


def test_what_is_missing_is_named(built: Path, tmp_path: Path) -> None:
    """A link, an anchor, a picture, a page in the navigation, and scripts and fonts from another place."""
    shutil.copytree(built / "site", tmp_path / "site")
    listed = tmp_path / "source" / "docs" / "README.md"
    listed.parent.mkdir(parents=True)
    listed.write_text(
        (built / "source" / "docs" / "README.md").read_text().replace("(plans.md)", "(tasks.md)")
    )
    page = tmp_path / "site" / "docs" / "tasks.html"
    page.write_text(
        page.read_text()
        + '<a href="nowhere.html">1</a><a href="tutorial.html#no">2</a><a href="https://example.org">3</a>'
        '<img src="gone.png"><script src="https://example.org/x.js"></script>'
    )
    (tmp_path / "site" / "more.css").write_text("@font-face { src: url('https://example.org/x.woff') }")
    home = tmp_path / "site" / "index.html"
    home.write_text(home.read_text().replace('href="./docs/plans.html"', 'href="docs/tasks.html"'))
    done = run("check_site.py", tmp_path)
    assert done.returncode == 1
    assert sorted(done.stderr.splitlines()) == [
        "docs/plans.md is not in docs/README.md: add a line that says for what it is",
        "docs/plans.md is not in the navigation: add it to nav in docs/zensical.toml",
        "docs/tasks.html: links to nowhere.html, which isn't there",
        "docs/tasks.html: links to tutorial.html#no, but docs/tutorial.html has no heading with this anchor",
        "docs/tasks.html: loads gone.png, which isn't there",
        "docs/tasks.html: loads https://example.org/x.js from another place; have it here",
        "more.css: loads url('https://example.org/x.woff",
    ]


def test_it_opens_as_a_file_and_finds_without_asking_anybody(built: Path, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1400, "height": 800})
    page.set_default_timeout(PAGE_LIMIT_MS)
    asked, errors = list[str](), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((built / "site" / "index.html").as_uri())
    page.get_by_role("link", name="Guides").first.click()
    expect(page.get_by_role("heading", name="Tasks", level=1)).to_be_visible()
    page.get_by_role("button", name="Search").first.click()
    page.keyboard.type("killed worker")
    found = page.get_by_role("option", name="5. Kill a worker")
    expect(found).to_be_visible()
    found.click()
    expect(page.get_by_role("heading", name="5. Kill a worker")).to_be_in_viewport()
    assert [url for url in asked if not url.startswith(("file:", "blob:", "data:"))] == []
    assert errors == []
    page.close()
