"""The page of `autoscaler init`: what it answers to strangers."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
import pytest_asyncio

from autoscaler.github.apps.permissions import permissions_for
from autoscaler.setup.app_page import MAX_REQUESTS, AppPage, PageError
from autoscaler.setup.manifest import AppPlan
from tests.setup.browser import FakeBrowser

PLAN = AppPlan('fleet"><b>', "https://github.com", "acme", False, permissions_for(repository=False))


async def never(code: str) -> str:
    raise AssertionError(code)


@pytest_asyncio.fixture
async def page() -> AsyncIterator[AppPage]:
    made = AppPage(PLAN, never, ())
    await made.start()
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
def browser(session: aiohttp.ClientSession) -> FakeBrowser:
    return FakeBrowser(session)


async def test_a_name_that_leads_to_loopback_does_not_show_the_page(
    page: AppPage, browser: FakeBrowser
) -> None:
    assert (await browser.open(page.url, Host="evil.example")).status == 400
    assert (await browser.open(page.url)).status == 200
    assert (await browser.open(page.url, Host=f"localhost:{page.port}")).status == 200


async def test_there_is_one_page_without_scripts(page: AppPage, browser: FakeBrowser) -> None:
    assert (await browser.open(f"{page.url}/favicon.ico")).status == 404
    shown = await browser.open(page.url)
    assert "default-src 'none'" in shown.policy
    assert "form-action https://github.com;" in shown.policy
    assert "<b>" not in shown.text
    assert shown.action.startswith("https://github.com/organizations/acme/settings/apps/new?state=")


@pytest.mark.parametrize("query", ["code=a", "code=a&state=", "code=a&state=%C3%A9", "code="])
async def test_a_code_without_the_state_is_refused(
    page: AppPage, browser: FakeBrowser, query: str
) -> None:
    assert (await browser.open(f"{page.url}?{query}")).status == 403
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await page.created()


async def test_requests_are_limited(page: AppPage, browser: FakeBrowser) -> None:
    for _ in range(MAX_REQUESTS):
        await browser.open(page.url)
    assert (await browser.open(page.url)).status == 429


async def test_each_run_has_a_state_and_an_address_of_its_own(
    page: AppPage, browser: FakeBrowser
) -> None:
    other = AppPage(PLAN, never, ())
    await other.start()
    first, second = await browser.open(page.url), await browser.open(other.url)
    await other.close()
    assert first.action != second.action
    address = f"http://127.0.0.1:{page.port}"
    for path in ("", "/", urlsplit(other.url).path):
        assert (await browser.open(address + path)).status == 404


async def test_a_port_in_use_is_reported(page: AppPage) -> None:
    other = AppPage(PLAN, never, ())
    with pytest.raises(PageError, match="name another one with --port"):
        await other.start(page.port)
    await other.close()


async def test_an_error_that_nothing_foresees_ends_the_wait(browser: FakeBrowser) -> None:
    """As when nothing reads the output of the command any more."""

    async def closed(_: str) -> str:
        raise BrokenPipeError

    made = AppPage(PLAN, closed, ())
    await made.start()
    state = parse_qs(urlsplit((await browser.open(made.url)).action).query)["state"][0]
    assert (await browser.open(f"{made.url}?code=a&state={state}")).status == 500
    with pytest.raises(BrokenPipeError):
        await made.created()
    await made.close()
