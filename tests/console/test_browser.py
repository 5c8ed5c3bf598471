"""The console in a real headless Chromium: sign-in, pages, a phone, no JavaScript, and no complaint of it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from autoscaler.views.jobs.lists import JobFilter, running_jobs, waiting_jobs
from autoscaler.views.listed import Part
from autoscaler.views.machines import MachineFilter, machines
from tests.console.browser import DESKTOP, PHONE, Tab, browser, chromium, sign_in, tab
from tests.console.large_fleet import bad_night
from tests.console.scenes import A10G, CPU, NO_CAPACITY, Scene, pytorch
from tests.console.serving import Console, pages, served

PAGES = (
    "/",
    f"/skus/{A10G}",
    "/jobs",
    "/jobs?state=in_progress",
    "/jobs?state=unmatched",
    "/machines",
    f"/explain?labels={CPU}&repository=acme/widgets",
    "/repositories",
    "/repositories/acme/widgets",
    "/cost",
    "/faults",
    "/runbooks/OutOfCapacity",
)


@dataclass
class Shown:
    """A browser, and a console with a fleet that is out of capacity."""

    scene: Scene
    console: Console
    browser: Browser


@pytest.fixture(scope="module")
def scene() -> Scene:
    async def script(scene: Scene) -> None:
        await scene.push()
        await asyncio.sleep(600)
        scene.refused[A10G] = NO_CAPACITY
        await scene.push()
        await scene.queue("lf.linux.g5.4xlarge.nvidia.gpus-of-a-name-that-is-as-long-as-it-can-be")
        await asyncio.sleep(300)

    return Scene(pytorch()).play(script)


@pytest_asyncio.fixture
async def shown(scene: Scene) -> AsyncIterator[Shown]:
    async with served(scene.queries) as console, browser() as started:
        yield Shown(scene, console, started)


async def fits(one: Tab) -> bool:
    """Return True if the page needs no horizontal scrolling."""
    content, window = await one.width()
    return content <= window


@pytest.mark.systems
async def test_an_operator_signs_in_and_reads_why_a_job_waits(shown: Shown) -> None:
    async with tab(shown.browser, shown.console) as one:
        await one.page.goto("/")
        await one.page.get_by_label("Token").fill("x" * 40)
        await one.page.get_by_role("button", name="Sign in").click()
        assert "not valid" in await one.page.get_by_role("alert").inner_text()
        # A refused form is an error of the network in the browser's console.
        assert all("403" in text for text in one.complaints)
        one.complaints.clear()
        await sign_in(one)
        heading = one.page.get_by_role("heading", level=1)
        assert await heading.inner_text() == f"{A10G}: out of capacity"
        row = one.page.get_by_role("row").filter(has_text=A10G).first
        await row.get_by_role("link").nth(1).click()
        await one.page.get_by_text("number 1 of 3 in line").wait_for()
        await one.page.get_by_role("heading", name="Stages").wait_for()
        main = await one.page.get_by_role("main").inner_text()
        assert "InsufficientInstanceCapacity" in main
        assert "the controller tries to launch a machine again" in main
        await one.page.get_by_text("Live.").wait_for()
        assert one.complaints == []


@pytest.mark.systems
@pytest.mark.parametrize(
    ("size", "last"), [(DESKTOP, ".faults li"), (PHONE, "h1")], ids=["desktop", "phone"]
)
async def test_the_first_screen_says_what_is_wrong_without_scrolling(
    shown: Shown, size: tuple[int, int], last: str
) -> None:
    async with tab(shown.browser, shown.console, size) as one:
        await sign_in(one)
        box = await one.page.locator(last).first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= size[1]


@pytest.mark.systems
async def test_a_large_fleet_on_a_bad_night_takes_three_screens_of_a_phone(shown: Shown) -> None:
    night = bad_night()
    assert (len(night.status.skus), night.status.machines) == (66, 3_500)
    html = pages().overview(night, pages().frame("on-call", night.status.at))
    async with tab(shown.browser, shown.console, PHONE) as one:
        await sign_in(one)
        await one.page.route(
            f"{shown.console.url}/",
            lambda route: route.fulfill(body=html, content_type="text/html"),
        )
        await one.page.goto("/")
        await one.page.get_by_text("4 more faults").wait_for()
        assert await fits(one)
        height = await one.page.evaluate("document.documentElement.scrollHeight")
        assert height <= 3 * PHONE[1]


@pytest.mark.systems
async def test_a_reason_code_leads_to_its_section(shown: Shown) -> None:
    async with tab(shown.browser, shown.console) as one:
        await sign_in(one)
        await one.page.locator(".faults").get_by_role("link", name="capacity", exact=True).click()
        await one.page.locator("h2#capacity").wait_for()
        assert one.page.url.endswith("/runbooks/reasons#capacity")


@pytest.mark.systems
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_page_fits_a_phone_and_the_browser_complains_about_none(
    shown: Shown, scheme: Literal["light", "dark"]
) -> None:
    machine = machines(shown.scene.queries.fleet(), MachineFilter(), Part(0, 1)).rows[0].id
    running = (
        running_jobs(
            shown.scene.queries.fleet(), shown.scene.queries.waiting, JobFilter(), Part(0, 1)
        )
        .rows[0]
        .id
    )
    async with tab(shown.browser, shown.console, PHONE, scheme=scheme) as one:
        await sign_in(one)
        pages = (*PAGES, f"/machines/{machine}", f"/jobs/{running}")
        # A colour changes no width: a few pages are enough to see that the dark style sheet is accepted.
        for path in pages if scheme == "light" else pages[:2]:
            await one.page.goto(path)
            assert await fits(one), path
            assert await one.page.get_by_role("main").count() == 1
            assert await one.page.get_by_role("heading", level=1).count() == 1
        assert one.complaints == []


@pytest.mark.systems
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_page_that_a_reader_cannot_use(
    shown: Shown, scheme: Literal["light", "dark"]
) -> None:
    machine = machines(shown.scene.queries.fleet(), MachineFilter(), Part(0, 1)).rows[0].id
    waiting = (
        waiting_jobs(
            shown.scene.queries.fleet(), shown.scene.queries.waiting, JobFilter(), Part(0, 1)
        )
        .rows[0]
        .id
    )
    async with tab(shown.browser, shown.console, scheme=scheme) as one:
        await one.page.goto("/")
        assert await one.inaccessible() == []
        await sign_in(one)
        for path in (*PAGES, f"/machines/{machine}", f"/jobs/{waiting}"):
            await one.page.goto(path)
            assert await one.inaccessible() == [], path


@pytest.mark.systems
async def test_axe_finds_a_text_without_contrast_and_an_input_without_a_label(shown: Shown) -> None:
    async with tab(shown.browser, shown.console) as one:
        await sign_in(one)
        faint = "<p>Faint</p><input>"
        await one.page.evaluate(
            "html => document.getElementById('content').innerHTML = html", faint
        )
        await one.page.evaluate("document.querySelector('main p').style.color = '#ddd'")
        found = {problem.partition(":")[0] for problem in await one.inaccessible()}
        assert {"color-contrast", "label"} <= found


@pytest.mark.systems
async def test_the_basics_work_without_javascript(shown: Shown) -> None:
    async with tab(shown.browser, shown.console, scripts=False) as one:
        await sign_in(one)
        assert await one.page.get_by_role("heading", level=1).inner_text()
        assert await one.page.locator("noscript").count()
        await one.page.get_by_role("searchbox").fill(A10G)
        await one.page.get_by_role("button", name="Find").click()
        await one.page.get_by_role("heading", name="Offerings, in order of preference").wait_for()
        await one.page.get_by_role("button", name="Sign out").click()
        await one.page.get_by_label("Token").wait_for()
        assert one.complaints == []


@pytest.mark.systems
async def test_an_open_page_shows_a_change_without_a_reload(shown: Shown) -> None:
    shown.console.endpoint._live._every = 0.05
    clock, past = shown.scene.world.standing, shown.scene.controller.parts.recent_past
    async with tab(shown.browser, shown.console) as one:
        await sign_in(one)
        await one.page.get_by_text("Live.").wait_for()
        await one.page.evaluate("window.unchanged = true")
        before = await one.page.locator("footer time").inner_text()
        heading, news = one.page.get_by_role("heading", level=1), one.page.get_by_role("status")
        verdict = await heading.inner_text()
        await one.page.evaluate("document.getElementById('verdict').textContent = 'Fine'")
        assert await news.inner_text() == ""
        assert clock.stopped_at is not None
        clock.stopped_at += 60.0
        past.changes += 1
        # The first page is reused for a second: another change follows.
        changing = "before => document.querySelector('footer time').innerText !== before"
        while not await one.page.evaluate(changing, before):
            past.changes += 1
            await asyncio.sleep(0.1)
        assert await one.page.evaluate("window.unchanged")
        # A screen reader announces the status.
        assert await news.inner_text() == await heading.inner_text() == verdict
        assert one.complaints == []


@pytest.mark.systems
async def test_an_open_page_says_that_it_is_old_until_the_controller_answers_again(
    shown: Shown,
) -> None:
    shown.console.endpoint._live._every = 0.05
    async with tab(shown.browser, shown.console) as one:
        await sign_in(one)
        await one.page.get_by_text("Live.").wait_for()
        # An empty alert has no box: the role finds it only with its text.
        old, heading = one.page.locator("#not-refreshed"), one.page.get_by_role("heading", level=1)
        verdict = await heading.inner_text()
        assert await old.inner_text() == ""
        await one.page.route(one.page.url, lambda route: route.abort("connectionrefused"))
        shown.scene.controller.parts.recent_past.changes += 1
        await one.page.get_by_text("Not refreshed since").wait_for()
        assert await heading.inner_text() == verdict
        assert not await one.page.get_by_text("Live.").is_visible()
        await one.page.unroute(one.page.url)
        await one.page.get_by_text("Live.").wait_for()
        assert await old.inner_text() == ""


@pytest.mark.systems
async def test_a_page_whose_session_ended_asks_for_the_token(shown: Shown) -> None:
    async with tab(shown.browser, shown.console) as one:
        await sign_in(one, "/cost")
        shown.console.tokens.valid.clear()
        await one.page.reload()
        await one.page.get_by_label("Token").wait_for()
        assert one.page.url.endswith("/cost")


def test_a_missing_browser_is_reported_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHROMIUM", "/nowhere/chromium")
    with pytest.raises(FileNotFoundError, match="/nowhere/chromium"):
        chromium()
    monkeypatch.delenv("CHROMIUM")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(FileNotFoundError, match="run scripts/bootstrap"):
        chromium()
