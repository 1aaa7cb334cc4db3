"""The dashboard in a real browser, Debian's Chromium, over real services.

PEERLOOM_PICTURES=FOLDER keeps the two pictures of docs/dashboard.md there.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from node_agent_parts import StartService
from paced_jobs import put_paced_task
from playwright.sync_api import Browser, Page, expect, sync_playwright

from peerloom import Client
from peerloom.embedded import Embedded

CHROMIUM = shutil.which("chromium")
LIMIT_MS = 90_000
STOP_LIMIT_S = 30.0
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    pytest.mark.timeout(300),
]


@pytest.fixture
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM)
        yield found
        found.close()


@contextmanager
def dashboard(address: str, *flags: str) -> Iterator[str]:
    """`peerloom dashboard` as a process; its URL. It ends by itself after Ctrl-C."""
    command = [sys.executable, "-m", "peerloom.cli", "dashboard", "--address", address]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", *flags], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
            process.send_signal(signal.SIGINT)
            assert process.wait(STOP_LIMIT_S) == 0
        finally:
            process.kill()


class Look:
    """A page of the dashboard, and what went wrong while it was looked at."""

    def __init__(self, browser: Browser, url: str, scheme: str = "light") -> None:
        self.page: Page = browser.new_page(
            color_scheme="dark" if scheme == "dark" else "light", viewport={"width": 1200, "height": 800}
        )
        self.page.set_default_timeout(LIMIT_MS)
        self.errors, self.asked, self.url = list[str](), list[str](), url
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(url)

    def check(self) -> None:
        """Nothing was said on the console, and nothing was asked of another place."""
        assert self.errors == []
        assert [url for url in self.asked if not url.startswith(self.url)] == []
        assert self.asked

    def picture(self, name: str, height: int) -> None:
        """Keeps what is seen at the top, where somebody asked for it."""
        if folder := os.environ.get("PEERLOOM_PICTURES"):
            size = self.page.viewport_size
            assert size is not None
            self.page.screenshot(
                path=Path(folder) / name, clip={"x": 0, "y": 0, "width": size["width"], "height": height}
            )


def points(page: Page) -> int:
    """How many steps the curve of the loss shows."""
    return int(page.locator("[id^=chart-job][id$=-loss]").get_attribute("data-points") or 0)


def await_more_points(page: Page, than: int) -> None:
    page.wait_for_function(
        "than => Number(document.querySelector('[id^=chart-job][id$=-loss]')?.dataset.points ?? 0) > than",
        arg=than,
    )


def test_nodes_and_a_job_are_watched_and_a_killed_node_turns_red(
    browser: Browser, start_service: StartService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below a sub-path, as behind a proxy."""
    put_paced_task(tmp_path, 0.02)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        Embedded(tmp_path / "state", (2, 1)) as system,
        Client(system.address) as client,
        dashboard(system.address, "--base-path", "/lab/window") as url,
    ):
        attic = start_service(
            *("node_agent", "--registry", system.address, "--name", "attic"),
            *("--slots", "1", "--state", str(tmp_path / "attic")),
        )
        look = Look(browser, url)
        page = look.page
        for name in ("node-1", "node-2", "attic"):
            expect(page.locator(f"[data-node={name}].alive")).to_be_visible(timeout=LIMIT_MS)
        expect(page.locator("[data-node=attic] .belief")).to_contain_text("0", timeout=LIMIT_MS)
        page.get_by_role("link", name="Jobs").click()
        expect(page.get_by_text("No job was submitted yet.")).to_be_visible(timeout=LIMIT_MS)

        job = client.train("paced:Paced", requests=3, epochs=1000)
        page.get_by_role("link", name=job.id).click()
        await_more_points(page, 0)
        await_more_points(page, points(page))
        expect(page.get_by_role("heading", name="Why these nodes")).to_be_visible()
        formed = page.get_by_text(re.compile(r"^generation \d+: .*attic"))
        expect(formed.first).to_be_visible(timeout=LIMIT_MS)

        attic.kill()
        page.get_by_role("link", name="Network").click()
        expect(page.locator("[data-node=attic].dead")).to_be_visible(timeout=LIMIT_MS)
        look.picture("dashboard-network.png", 270)
        page.go_back()
        expect(page.get_by_text("a worker was lost")).to_be_visible(timeout=LIMIT_MS)
        await_more_points(page, 1)
        dark = Look(browser, f"{url}#/jobs/{job.id}", "dark")
        await_more_points(dark.page, 150 if "PEERLOOM_PICTURES" in os.environ else 1)
        dark.picture("dashboard-job.png", 800)
        job.cancel()
        expect(page.locator("h1 .cancelled")).to_be_visible(timeout=LIMIT_MS)
        look.check()
        assert dark.errors == []


def test_a_registry_that_is_away_is_said_to_be_and_comes_back(
    browser: Browser, start_service: StartService, tmp_path: Path
) -> None:
    state = ("--state", str(tmp_path / "registry"))
    registry = start_service("registry", *state)
    with dashboard(registry.address) as url:
        look = Look(browser, url)
        page = look.page
        expect(page.get_by_text("No node has registered yet.")).to_be_visible(timeout=LIMIT_MS)
        registry.kill()
        expect(page.get_by_text("registry away since")).to_be_visible(timeout=LIMIT_MS)
        expect(page.locator("main.stale")).to_be_visible()
        start_service("registry", *state, "--listen", registry.address)
        expect(page.get_by_text("registry away since")).to_have_count(0, timeout=LIMIT_MS)
        look.check()


def test_it_answers_to_its_own_names_only_and_forbids_what_is_from_elsewhere(
    start_service: StartService, tmp_path: Path
) -> None:
    registry = start_service("registry", "--state", str(tmp_path))
    with dashboard(registry.address) as url:
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.headers["content-security-policy"].startswith("default-src 'self';")
        foreign = urllib.request.Request(url, headers={"Host": "elsewhere.example"})
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(foreign, timeout=60)
        assert caught.value.code == 400
        caught.value.close()
