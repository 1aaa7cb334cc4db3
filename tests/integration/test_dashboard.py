"""The dashboard in a real browser, Debian's Chromium, over real services.

PEERLOOM_PICTURES=FOLDER keeps the pictures of docs/dashboard.md there.
"""

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from dashboard_parts import CHROMIUM, Look, await_more_points, dashboard, points
from node_agent_parts import StartService
from paced_jobs import let_nodes_import_paced_task
from playwright.sync_api import Browser, Page, expect

from peerloom import Client, MachineLoad
from peerloom.embedded import Embedded

VERDICT_LIMIT_S = 2.0
USES = re.compile(r"^ cpu \d+%  mem \d+% ")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """Two nodes that know a task which leaves the cores to others."""
    folder = tmp_path_factory.mktemp("system")
    with pytest.MonkeyPatch.context() as patch:
        let_nodes_import_paced_task(patch, folder, 0.02)
        with Embedded(folder / "state", (2, 1)) as running:
            yield running


def check_plausible(load: MachineLoad | None) -> None:
    """What an agent on this very machine may say of it."""
    assert load is not None
    assert 0 <= load.own_cpu_use <= load.cpu_use <= 1
    assert 0 < load.cores <= (os.cpu_count() or 1)
    assert 10**7 < load.memory_used_bytes < load.memory_total_bytes <= psutil.virtual_memory().total


def test_nodes_and_a_job_are_watched_and_a_killed_node_turns_red(
    system: Embedded, browser: Browser, start_service: StartService, tmp_path: Path
) -> None:
    """Below a sub-path, as behind a proxy."""
    with (
        Client(system.address) as client,
        dashboard(system.address, "--base-path", "/lab/window") as (url, _),
    ):
        attic = start_service(
            *("node_agent", "--registry", system.address, "--name", "attic"),
            *("--slots", "1", "--state", str(tmp_path / "attic")),
        )
        look = Look(browser, url)
        page = look.page
        for name in ("node-1", "node-2", "attic"):
            expect(page.locator(f"[data-node={name}].alive")).to_be_visible()
        expect(page.locator("[data-node=attic] .belief")).to_contain_text("0")
        expect(page.locator("[data-node=attic] .load")).to_have_text(USES)
        check_plausible(client.node("attic").load)
        job = client.train("paced:Paced", requests=3, epochs=1000)
        page.get_by_role("link", name="Jobs").click()
        page.get_by_role("link", name=job.id).click()
        await_more_points(page, 0)
        await_more_points(page, points(page))
        expect(page.get_by_role("heading", name="Why these nodes")).to_be_visible()
        formed = page.get_by_text(re.compile(r"^generation \d+: .*attic"))
        expect(formed.first).to_be_visible()

        page.get_by_role("link", name="Network").click()
        expect(page.locator("[data-node=attic].alive")).to_be_visible()
        attic.kill()
        red = page.wait_for_function("() => document.querySelector('[data-node=attic].dead') && Date.now()")
        verdict = next(one for one in client.watch_nodes() if one.kind == "interrupted")
        assert verdict.time is not None
        assert red.json_value() / 1000 - verdict.time.timestamp() < VERDICT_LIMIT_S
        look.picture("dashboard-network.png", 800)
        page.go_back()
        expect(page.get_by_text("a worker was lost")).to_be_visible()
        await_more_points(page, 1)
        dark = Look(browser, f"{url}#/jobs/{job.id}", "dark")
        await_more_points(dark.page, 150 if "PEERLOOM_PICTURES" in os.environ else 1)
        dark.picture("dashboard-job.png", 1150)
        job.cancel()
        expect(page.locator("h1 .cancelled")).to_be_visible()
        look.check()
        assert dark.errors == []


def draw_a_one(page: Page) -> None:
    box = page.locator("canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 140, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 140, box["y"] + 240, steps=5)
    page.mouse.up()


def test_a_drawn_digit_is_asked_about_and_a_node_s_history_and_artifacts_are_told(
    system: Embedded, browser: Browser
) -> None:
    with Client(system.address) as client, dashboard(system.address) as (url, _):
        job = client.train("digits", requests=1, epochs=5)
        job.result(90).raise_for_state()
        look = Look(browser, f"{url}#/models")
        page = look.page
        page.get_by_role("link", name="digits:1").click()
        draw_a_one(page)
        expect(page.locator(".answer .label")).to_have_text(re.compile(r"^\d$"))
        expect(page.locator(".answer tbody tr")).to_have_count(10)
        look.picture("dashboard-ask.png", 800)
        page.get_by_role("textbox", name="Values").fill("1 2 3")
        page.get_by_role("button", name="Ask").click()
        expect(page.locator(".answer")).to_contain_text("64, for an input of 1 x 8 x 8")
        page.get_by_role("link", name="Artifacts").click()
        row = page.get_by_role("row", name=re.compile("model"))
        expect(row.filter(has_text="trainer").first).to_be_visible()
        busy = client.beliefs()[0].name
        page.goto(f"{url}#/nodes/{busy}")
        expect(page.get_by_role("heading", name="How it came about")).to_be_visible()
        # The refusal of three numbers is the one thing that the browser says aloud itself.
        assert [one for one in look.errors if "400" not in one] == []


def test_actions_need_the_token_and_only_a_page_of_its_own(system: Embedded, browser: Browser) -> None:
    with Client(system.address) as client, dashboard(system.address, "--actions") as (url, token):
        page = Look(browser, f"{url}#/nodes/node-2").page
        page.get_by_role("button", name="Drain it …").click()
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Drain it", exact=True).click()
        expect(page.get_by_role("dialog").get_by_role("status")).to_have_text("node-2 gets no new work.")
        assert client.node("node-2").draining
        page.get_by_role("button", name="Close").click()
        expect(page.get_by_role("button", name="Take it back into service …")).to_be_visible()

        def status(path: str, origin: str, given: str, kind: str = "application/json") -> int:
            content = json.dumps({"do": "undrain", "what": "node-2", "token": given}).encode()
            headers = {"Content-Type": kind, "Origin": origin}
            asked = urllib.request.Request(f"{url}{path}", content, headers)
            try:
                with urllib.request.urlopen(asked, timeout=60) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                error.close()
                return error.code

        here = url.rstrip("/")
        assert status("act", "http://elsewhere.example", token) == 403
        assert status("act", here, "guessed") == 403
        assert status("act", here, token, "text/plain") == 400
        assert client.node("node-2").draining
        assert status("logs", here, "guessed") == 403
        assert status("logs", here, token) == 404, "it is no job"
        assert status("act", here, token) == 200
        assert not client.node("node-2").draining
    with dashboard(system.address) as (url, _):
        page = Look(browser, f"{url}#/nodes/node-2").page
        expect(page.get_by_role("heading", name="Why it is believed")).to_be_visible()
        expect(page.locator("[data-act]")).to_have_count(0)
        for path in ("act", "logs"):
            assert status(path, url.rstrip("/"), token) == 404, "without --actions there are none"


def test_a_registry_that_is_away_is_said_to_be_and_comes_back(
    browser: Browser, start_service: StartService, tmp_path: Path
) -> None:
    state = ("--state", str(tmp_path / "registry"))
    registry = start_service("registry", *state)
    with dashboard(registry.address) as (url, _):
        look = Look(browser, url)
        page = look.page
        expect(page.get_by_text("No node has registered yet.")).to_be_visible()
        registry.kill()
        expect(page.get_by_text("registry away since")).to_be_visible()
        expect(page.locator("main.stale")).to_be_visible()
        start_service("registry", *state, "--listen", registry.address)
        expect(page.get_by_text("registry away since")).to_have_count(0)
        look.check()


def test_it_answers_to_its_own_names_only_and_forbids_what_is_from_elsewhere(
    start_service: StartService, tmp_path: Path
) -> None:
    registry = start_service("registry", "--state", str(tmp_path))
    with dashboard(registry.address) as (url, _):
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.headers["content-security-policy"].startswith("default-src 'self';")
        with urllib.request.urlopen(f"{url}stream", timeout=60) as answer:
            assert answer.headers["x-accel-buffering"] == "no", "a proxy would keep it back"
        foreign = urllib.request.Request(url, headers={"Host": "elsewhere.example"})
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(foreign, timeout=60)
        assert caught.value.code == 400
        assert b"--host NAME" in caught.value.read()
        caught.value.close()


def test_beside_a_system_it_comes_back_at_its_address_and_ends_with_it(
    browser: Browser, tmp_path: Path
) -> None:
    with Embedded(tmp_path, (), services=("registry",), dashboard=True) as system:
        shown = system.dashboard
        assert shown is not None
        page = Look(browser, shown.url).page
        expect(page.get_by_text("No node has registered yet.")).to_be_visible()
        first = psutil.Process(shown.pid)
        first.kill()
        expect(page.get_by_text("This window's own process is away since")).to_be_visible()
        expect(page.get_by_text("This window's own process is away since")).to_have_count(0)
        again = psutil.Process(shown.pid)
    assert not again.is_running()
