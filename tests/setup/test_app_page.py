"""The page of `autoscaler init`: what it answers to strangers."""

from collections.abc import AsyncIterator

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
    local = page.url.replace("127.0.0.1", "localhost").removeprefix("http://").rstrip("/")
    assert (await browser.open(page.url, Host=local)).status == 200


async def test_there_is_one_page_without_scripts(page: AppPage, browser: FakeBrowser) -> None:
    assert (await browser.open(f"{page.url}favicon.ico")).status == 404
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
    assert not page.created.done()


async def test_requests_are_limited(page: AppPage, browser: FakeBrowser) -> None:
    for _ in range(MAX_REQUESTS):
        await browser.open(page.url)
    assert (await browser.open(page.url)).status == 429


async def test_each_run_has_a_state_of_its_own(page: AppPage, browser: FakeBrowser) -> None:
    other = AppPage(PLAN, never, ())
    await other.start()
    first, second = await browser.open(page.url), await browser.open(other.url)
    await other.close()
    assert first.action != second.action


async def test_a_port_in_use_is_reported(page: AppPage) -> None:
    other = AppPage(PLAN, never, ())
    with pytest.raises(PageError, match="name another one with --port"):
        await other.start(int(page.url.rsplit(":", 1)[1].rstrip("/")))
    await other.close()
