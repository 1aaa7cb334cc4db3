"""The dashboard below a path of a reverse proxy that strips or keeps it: pages, stream and actions."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from dashboard_parts import CHROMIUM, Look, dashboard
from node_agent_parts import StartService
from playwright.sync_api import Browser, expect
from sub_path_proxy import sub_path_proxy

from peerloom import Client

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    pytest.mark.timeout(300),
]


@pytest.mark.parametrize("strips", [True, False], ids=["stripped", "kept"])
def test_pages_stream_and_actions_work_below_a_path(
    start_service: StartService, tmp_path: Path, browser: Browser, strips: bool
) -> None:
    registry = start_service("registry", "--state", str(tmp_path / "registry"))
    flags = ("--name", "attic", "--slots", "1", "--state", str(tmp_path / "attic"))
    start_service("node_agent", "--registry", registry.address, *flags)
    base = () if strips else ("--base-path", "/peerloom")
    with (
        Client(registry.address) as client,
        dashboard(registry.address, "--actions", *base) as (inside, token),
        sub_path_proxy(urlsplit(inside).netloc, "/peerloom", strips=strips) as place,
    ):
        look = Look(browser, f"{place}/")
        page = look.page
        page.get_by_role("link", name="attic").first.click()
        page.get_by_role("button", name="Drain it …").click()
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Drain it", exact=True).click()
        expect(page.get_by_role("dialog").get_by_role("status")).to_have_text("attic gets no new work.")
        assert client.node("attic").draining
        page.get_by_role("button", name="Close").click()
        expect(page.get_by_role("button", name="Take it back into service …")).to_be_visible()
        for name in ("Events", "Artifacts", "Jobs", "Network"):
            page.get_by_role("navigation").get_by_role("link", name=name).click()
            expect(page.locator("nav [aria-current]")).to_have_text(name)
        client.drain("attic", undo=True)
        expect(page.locator("[data-node=attic].alive")).to_be_visible()
        page.goto(f"{place}/?wall")
        expect(page.locator("[data-node=attic].alive")).to_be_visible()
        look.check()
        if not strips:
            page.goto(place)
            expect(page.locator("[data-node=attic].alive")).to_be_visible()
            assert page.url == f"{place}/"
