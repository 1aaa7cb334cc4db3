"""Every page over a made-up system: readable with 100 nodes, usable without a mouse, and safe to act on."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from dashboard_parts import CHROMIUM, Look, filled_board, model, node, served
from playwright.sync_api import Browser, Page, expect

from peerloom.dashboard.posted import posted_route
from peerloom.errors import PermissionDeniedError

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    pytest.mark.timeout(300),
]
NODES, FEW = 100, 8  # axe-core looks at each tile for long
FIRST = node(1).name
PAGES = (
    "",
    "#/jobs",
    "#/jobs/job-1",
    "#/jobs/job-2",
    f"#/nodes/{FIRST}",
    "#/models",
    "#/artifacts",
    "#/events",
)


ASK = f"#/models/{model(1).digest}"


@pytest.fixture(scope="module")
def asked() -> list[Mapping[str, Any]]:
    """What pages posted."""
    return []


@pytest.fixture(scope="module")
def url(asked: list[Mapping[str, Any]]) -> Iterator[str]:
    async def act(posted: Mapping[str, Any]) -> dict[str, Any]:
        if posted["token"] != "right":
            raise PermissionDeniedError("That isn't the token.")
        asked.append(posted)
        return {"said": f"{posted['what']} gets no new work."}

    async def ask(posted: Mapping[str, Any]) -> dict[str, Any]:
        asked.append(posted)
        classes = [{"name": "7", "probability": 0.9}, {"name": "1", "probability": 0.1}]
        answer = {"label": "7", "classes": classes, "outputs": [0.0]}
        return {
            "answers": [answer],
            "inputs": 1,
            "mode": "remote",
            "nodes": [FIRST],
            "seconds": 0.02,
        }

    async def logs(posted: Mapping[str, Any]) -> dict[str, Any]:
        if posted["token"] != "right":
            raise PermissionDeniedError("That isn't the token.")
        lines = ["loading", "<img src=x onerror=alert(1)>"]
        return {"tails": [{"node": FIRST, "worker": "w1", "lines": lines}], "more": True}

    routes = [
        posted_route(f"/{name}", answer) for name, answer in (("act", act), ("ask", ask), ("logs", logs))
    ]
    with served(filled_board(FEW), routes) as place:
        yield place


@pytest.fixture(scope="module")
def crowded() -> Iterator[str]:
    with served(filled_board(NODES)) as place:
        yield place


def see_accessible(look: Look, places: Sequence[str], *rules: str) -> None:
    for place in places:
        look.page.goto(f"{look.url}{place}")
        expect(look.page.locator("main h1")).to_be_visible()
        expect(look.page.get_by_text("Asking")).to_have_count(0)
        look.check_accessible(*rules)
    look.check()
    look.page.close()


def test_no_page_has_a_serious_fault_of_accessibility(browser: Browser, url: str) -> None:
    see_accessible(Look(browser, url), (*PAGES, ASK, "?wall"))


def test_the_dark_colours_can_be_told_apart_too(browser: Browser, url: str) -> None:
    see_accessible(Look(browser, url, "dark"), ("", PAGES[2], PAGES[4], ASK, "?wall"), "color-contrast")


def overlaps(page: Page, selector: str) -> list[str]:
    """Pairs of what is selected that cover each other, by turned rectangles' centres: names on a ring."""
    found: list[str] = page.evaluate(
        """selector => {
          const boxes = [...document.querySelectorAll(selector)].map(one => {
            const {x, y, width, height} = one.getBBox();
            const matrix = one.getCTM();
            const at = (px, py) => new DOMPoint(px, py).matrixTransform(matrix);
            const [a, b] = [at(x, y + height / 2), at(x + width, y + height / 2)];
            const scale = Math.hypot(matrix.a, matrix.b);
            return {name: one.textContent, a, b, half: (height * scale) / 2.6};
          });
          const apart = (p, {a, b}) => {
            const [dx, dy] = [b.x - a.x, b.y - a.y];
            const t = Math.min(1, Math.max(0, ((p.x - a.x) * dx + (p.y - a.y) * dy) / (dx * dx + dy * dy)));
            return Math.hypot(p.x - a.x - t * dx, p.y - a.y - t * dy);
          };
          return boxes.flatMap((one, i) => boxes.slice(i + 1)
            .filter(other => Math.min(apart(one.a, other), apart(one.b, other), apart(other.a, one),
              apart(other.b, one)) < one.half + other.half)
            .map(other => `${one.name} / ${other.name}`));
        }""",
        selector,
    )
    return found


def test_a_hundred_names_are_readable_in_the_tiles_and_around_the_ring(
    browser: Browser, crowded: str
) -> None:
    look = Look(browser, crowded, width=1400)
    page = look.page
    expect(page.locator(".tile")).to_have_count(NODES)
    expect(page.locator(".spot text")).to_have_count(NODES)
    names = page.locator(".tile .name")
    cut = "all => all.filter(one => one.scrollWidth > one.clientWidth).map(one => one.textContent)"
    assert names.evaluate_all(cut) == []
    assert overlaps(page, ".spot text") == []
    size = page.evaluate(
        "() => { const m = document.querySelector('.spot text').getCTM(); return 13 * Math.hypot(m.a, m.b); }"
    )
    assert size >= 11, "pixels a letter is high"
    expect(page.locator(".topology line")).to_have_count(34 + 1)
    expect(page.get_by_text("1.5 ms: faithful, the bound is 10.0 ms")).to_be_visible()
    look.check()
    page.close()


def test_a_narrow_screen_scrolls_no_page_sideways(browser: Browser, crowded: str) -> None:
    """A phone's width; tables and drawings that are wider scroll within their own frames."""
    look = Look(browser, crowded, width=390)
    for place in (*PAGES, ASK):
        look.page.goto(f"{crowded}{place}")
        expect(look.page.locator("main h1")).to_be_visible()
        expect(look.page.get_by_text("Asking")).to_have_count(0)
        beyond = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert look.page.evaluate(beyond) <= 0, place
    look.check()
    look.page.close()


def test_a_wall_shows_a_hundred_nodes_without_scrolling(browser: Browser, crowded: str) -> None:
    look = Look(browser, f"{crowded}?wall", width=1920)
    page = look.page
    page.set_viewport_size({"width": 1920, "height": 1080})
    expect(page.locator(".tile")).to_have_count(NODES)
    expect(page.locator("header")).to_be_hidden()
    assert page.evaluate("() => document.documentElement.scrollHeight") <= 1080
    look.picture("dashboard-wall.png", 1080)
    page.close()


def test_a_job_s_page_tells_of_shares_methods_and_what_was_logged(browser: Browser, url: str) -> None:
    look = Look(browser, f"{url}#/jobs/job-1")
    page = look.page
    for chart, points in (("loss", 40), ("bytes", 40), ("logged-0", 40), ("metric", 1), ("shares", 4)):
        expect(page.locator(f"#chart-job-1-{chart}")).to_have_attribute("data-points", str(points))
    methods = page.get_by_role("table", name="Bytes by method").locator("tbody tr")
    expect(methods).to_have_text(["codec=none2020.0 kB1.0 kB", "codec=int82020.0 kB1.0 kB"])
    expect(page.get_by_text("it is the fastest")).to_be_visible()
    page.goto(f"{url}#/jobs/job-2")
    expect(
        page.get_by_text("was killed by signal 9. For such ends it was started again 2 times.")
    ).to_be_visible()
    look.check()
    page.close()


def test_what_a_machine_uses_stands_beside_what_was_allocated_in_words_and_bars(
    browser: Browser, url: str
) -> None:
    look = Look(browser, url)
    page = look.page
    first = page.locator(f'[data-node="{FIRST}"]')
    expect(first.locator(".slots")).to_have_text("1 of 2 slots")
    expect(first.locator(".load")).to_have_text(" cpu 34%  mem 19%  gpu 90% ")
    bars = first.locator(".load progress").evaluate_all("all => all.map(one => one.value)")
    assert bars == [0.34, 0.19, 0.9]
    older, dead = (page.locator(f'[data-node="{node(number).name}"]') for number in (4, 5))
    expect(older.locator(".load")).to_have_text("load unknown")
    expect(dead.locator(".load")).to_have_count(0)
    unknown = page.locator(f'[data-node="{node(3).name}"] .load')
    expect(unknown).to_have_text(" cpu 34%  mem 19%  gpu ? ")
    first.get_by_role("link", name=FIRST).click()
    facts = page.locator(".facts")
    expect(facts).to_contain_text("34% of 16, 12% by Peerloom")
    expect(facts).to_contain_text("12.0 GB of 64.0 GB")
    expect(facts).to_contain_text("90%, 40.0 GB of 80.0 GB")
    look.check()
    page.close()


def test_an_action_is_told_in_words_and_asks_for_the_token(
    browser: Browser, url: str, asked: list[Mapping[str, Any]]
) -> None:
    look = Look(browser, f"{url}#/nodes/{FIRST}")
    page = look.page
    page.get_by_role("button", name="Drain it …").press("Enter")
    dialog = page.get_by_role("dialog", name=f"Drain {FIRST}?")
    expect(dialog).to_contain_text("It gets no new work; what runs there goes on.")
    look.check_accessible()
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("status")).to_have_text("That isn't the token.")
    assert [one for one in asked if "do" in one] == []
    dialog.get_by_label("Token").fill("right")
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("status")).to_have_text(f"{FIRST} gets no new work.")
    assert [one for one in asked if "do" in one] == [{"do": "drain", "what": FIRST, "token": "right"}]
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.close()


def test_what_workers_printed_is_read_with_the_token_and_is_text(browser: Browser, url: str) -> None:
    look = Look(browser, f"{url}#/jobs/job-1")
    page = look.page
    page.get_by_role("button", name="What they printed …").click()
    dialog = page.get_by_role("dialog", name="What the workers of job-1 printed")
    dialog.get_by_label("Token").fill("wrong")
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("status")).to_have_text("That isn't the token.")
    expect(dialog.locator("pre")).to_have_count(0)
    dialog.get_by_label("Token").fill("right")
    page.keyboard.press("Enter")
    expect(dialog.locator("pre")).to_have_text("loading\n<img src=x onerror=alert(1)>")
    expect(dialog.get_by_role("heading", name=f"{FIRST} w1 2 lines")).to_be_visible()
    expect(dialog).to_contain_text("peerloom jobs logs tells all that is kept")
    expect(dialog.locator("img")).to_have_count(0)
    look.check_accessible()
    look.picture("dashboard-logs.png", 800)
    dialog.get_by_role("button", name="Read them").click()
    expect(dialog.locator("pre")).to_have_count(1)
    page.close()


def test_what_is_drawn_fills_the_picture_that_the_model_gets(
    browser: Browser, url: str, asked: list[Mapping[str, Any]]
) -> None:
    """A small stroke in a corner becomes a line over the whole height, in the middle."""
    look = Look(browser, f"{url}{ASK}")
    page = look.page
    box = page.locator("canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 40, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 40, box["y"] + 160, steps=4)
    page.mouse.up()
    expect(page.locator(".answer .label")).to_have_text("7")
    question = next(one for one in asked if "model" in one)
    assert question["model"] == model(1).digest
    rows = [row.strip("[]").split(",") for row in question["text"].strip("[]").split("],[")]
    assert [len(row) for row in rows] == [8] * 8
    bright = [[column for column, value in enumerate(row) if int(value) > 8] for row in rows]
    assert all(row and set(row) <= {3, 4} for row in bright[1:-1])
    look.check()
    page.close()
