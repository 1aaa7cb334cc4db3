"""The dashboard while a service is killed and started again: nothing old looks new, and all comes back.

What can't be known is said to be unknown, or shown dimmed beside the time that it is of.
"""

import re
from pathlib import Path

import pytest
from dashboard_parts import CHROMIUM, Look, await_more_points, dashboard, points
from node_agent_parts import ServiceHandle, StartService
from paced_jobs import put_paced_task
from playwright.sync_api import Browser, expect

from peerloom import Client

CLOCK = r"\d\d:\d\d:\d\d"
USES = re.compile(r"^ cpu \d+%  mem \d+% ")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    pytest.mark.timeout(300),
]


class System:
    """All services and a node, each of which may be killed and started again where it was."""

    def __init__(self, start: StartService, folder: Path) -> None:
        self._start, self._folder = start, folder
        self._running: dict[str, ServiceHandle] = {}
        for name in ("registry", "selector", "trainer"):
            self.start(name)
        flags = ("--name", "attic", "--slots", "2", "--state", str(folder / "attic"))
        start("node_agent", "--registry", self.address, *flags, PYTHONPATH=str(folder))

    @property
    def address(self) -> str:
        return str(self._running["registry"].address)

    def kill(self, name: str) -> None:
        self._running[name].kill()

    def start(self, name: str) -> None:
        """On its own state; where it was, if it was."""
        flags = ["--state", str(self._folder / name)]
        if name in self._running:
            flags += ["--listen", self._running[name].address]
        if name != "registry":
            flags += ["--registry", self.address]
        self._running[name] = self._start(name, *flags)


@pytest.fixture
def system(start_service: StartService, tmp_path: Path) -> System:
    put_paced_task(tmp_path, 0.02)
    return System(start_service, tmp_path)


def network_page(browser: Browser, url: str) -> Look:
    """The nodes, once all services have told of the one: then it may be chosen."""
    look = Look(browser, url)
    tile = look.page.locator("[data-node=attic].alive")
    expect(tile.locator(".load")).to_have_text(USES)
    expect(tile.locator(".belief")).to_have_text(re.compile(r"belief \S"))
    expect(look.page.get_by_text("No job is at work.")).to_be_visible()
    return look


def expect_away(look: Look, service: str) -> None:
    told = rf"{service} away since {CLOCK}; what it told is as of {CLOCK}\."
    expect(look.page.get_by_text(re.compile(told))).to_be_visible()


def expect_back(look: Look, service: str) -> None:
    expect(look.page.get_by_text(f"{service} away since")).to_have_count(0)
    expect(look.page.locator("main.stale")).to_have_count(0)
    expect(look.page.locator(".as-of")).to_have_count(0)


def opacity(look: Look, selector: str) -> float:
    """How visible that is, in itself and by what it lies in."""
    seen: float = look.page.locator(selector).first.evaluate(
        "one => { let all = 1; for (; one; one = one.parentElement) "
        "all *= Number(getComputedStyle(one).opacity); return all; }"
    )
    return seen


def test_a_registry_that_restarts_leaves_what_it_told_dimmed_and_then_tells_on(
    browser: Browser, system: System
) -> None:
    with Client(system.address) as client, dashboard(system.address) as (url, _):
        network = network_page(browser, url)
        tile = network.page.locator("[data-node=attic].alive")
        job = client.train("paced:Paced", requests=1, epochs=1000)
        expect(tile.locator(".work")).to_have_text(job.id)
        watched = Look(browser, f"{url}#/jobs/{job.id}")
        await_more_points(watched.page, 0)
        kept = Look(browser, f"{url}#/artifacts")
        row = kept.page.get_by_role("row", name=re.compile("trainer"))
        expect(row.first).to_be_visible()

        system.kill("registry")
        expect_away(network, "registry")
        assert opacity(network, "[data-node=attic]") == 0.55
        assert opacity(network, "[data-node=attic] .belief") == 0.55, "dimmed once"
        expect_away(watched, "registry")
        await_more_points(watched.page, points(watched.page))
        expect(watched.page.locator("main.stale")).to_have_count(0)
        expect(kept.page.locator("main p.bad")).to_be_visible()
        expect(row.first).to_be_visible()

        system.start("registry")
        for look in (network, watched, kept):
            expect_back(look, "registry")
        expect(tile.locator(".load")).to_have_text(USES)
        client.drain("attic")
        expect(network.page.locator("[data-node=attic].draining")).to_be_visible()
        expect(kept.page.locator("main p.bad")).to_have_count(0)
        job.cancel()


def test_a_selector_that_restarts_leaves_its_beliefs_dimmed_with_their_time_and_then_tells_on(
    browser: Browser, system: System
) -> None:
    with Client(system.address) as client, dashboard(system.address) as (url, _):
        network, attic = network_page(browser, url), Look(browser, f"{url}#/nodes/attic")
        client.train("digits", requests=1, epochs=1).result(90).raise_for_state()
        told = attic.page.get_by_text(re.compile(r"^Belief [\d.-]+ after \d+ updates?"))
        expect(told).to_be_visible()

        system.kill("selector")
        expect_away(network, "selector")
        assert opacity(network, "[data-node=attic] .belief") == 0.55
        assert opacity(network, "[data-node=attic] .slots") == 1
        as_of = re.compile(rf"What follows is as of {CLOCK}: the selector is away\.")
        expect(attic.page.get_by_text(as_of)).to_be_visible()
        expect(told).to_be_visible()
        assert opacity(attic, "[data-from=selector]") == 0.55

        before = told.inner_text()
        system.start("selector")
        for look in (network, attic):
            expect_back(look, "selector")
        assert opacity(network, "[data-node=attic] .belief") == 1
        client.train("digits", requests=1, epochs=1).result(90).raise_for_state()
        expect(told).not_to_have_text(before)


def test_a_trainer_that_restarts_leaves_its_jobs_dimmed_with_their_time_and_then_tells_on(
    browser: Browser, system: System
) -> None:
    with Client(system.address) as client, dashboard(system.address) as (url, _):
        network = network_page(browser, url)
        other = client.train("digits", requests=1, epochs=1).result(90).raise_for_state().job_id
        job = client.train("paced:Paced", requests=1, epochs=1000)
        watched = Look(browser, f"{url}#/jobs/{job.id}")
        await_more_points(watched.page, 0)
        work = network.page.locator("[data-node=attic] .work")
        expect(work).to_have_text(job.id)

        system.kill("trainer")
        expect_away(watched, "trainer")
        expect(watched.page.locator("main.stale")).to_be_visible()
        expect_away(network, "trainer")
        as_of = re.compile(rf"What follows is as of {CLOCK}: the trainer is away\.")
        expect(network.page.get_by_text(as_of)).to_be_visible()
        expect(work).to_have_text(job.id)
        assert opacity(network, "[data-node=attic] .work") == 0.55
        with dashboard(system.address) as (later, _):
            untold = Look(browser, later)
            unknown = untold.page.get_by_text("What follows isn't known: the trainer is away.")
            expect(unknown).to_be_visible()
            expect(untold.page.get_by_text("No job is at work.")).to_have_count(0)
        # Of this job nobody had asked yet: the page has nothing old to show.
        unheard = Look(browser, f"{url}#/jobs/{other}")
        expect(unheard.page.locator("main .empty .title")).to_be_visible()

        before = points(watched.page)
        system.start("trainer")
        for look in (network, watched, unheard):
            expect_back(look, "trainer")
        await_more_points(watched.page, before)
        await_more_points(unheard.page, 0)
        job.cancel()
        expect(watched.page.locator("h1 .cancelled")).to_be_visible()
        expect(work).to_have_text("")
        assert [one.errors for one in (network, watched, unheard)] == [[], [], []]
