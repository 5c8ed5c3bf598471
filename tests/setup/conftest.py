"""A GitHub without an App, and an owner who does in a browser what `autoscaler init` asks for."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from autoscaler.controller.system import SystemClock
from autoscaler.setup.asking import Asking, Options, choose
from autoscaler.setup.github_app import Browser
from autoscaler.setup.run import FLEET, OwnApp, Result, begin, go_on
from lab.github.server import LabGitHub
from lab.github.settings import LabGitHubOptions, LabOrganization, LabRunnerGroup
from tests.patience import PATIENCE
from tests.setup.browser import FakeBrowser, Page

ORGANIZATIONS = (
    LabOrganization("acme", ("rocket", "site"), (LabRunnerGroup("shared"),)),
    LabOrganization("ann", ("toy",), kind="User"),
)
NAME = "acme-autoscaler"


@dataclass
class Owner:
    """One GitHub, the folder of a fleet, and what its owner does and sees."""

    github: LabGitHub
    folder: Path
    browser: FakeBrowser
    said: list[str] = field(default_factory=list)
    ahead: list[float] = field(default_factory=lambda: [0.0])
    """By how many seconds GitHub's clock is ahead."""

    def options(self, **more: object) -> Options:
        values = {
            "org": "acme",
            "ec2": "us-east-1",
            "subnets": ("subnet-0a",),
            "security_groups": ("sg-0a",),
            "api_url": self.github.api_url,
            "public_url": "https://10.0.0.5:8443",
            **more,
        }
        return Options(**values)  # type: ignore[arg-type]

    async def init(
        self,
        visit: Callable[[str], Awaitable[None]],
        options: Options | None = None,
        *,
        name: str = NAME,
        own: OwnApp | None = None,
        webhook: str | None = None,
        wait: float = PATIENCE,
        wait_for_installation: float = PATIENCE,
    ) -> Result:
        """Run `autoscaler init` while the owner visits the address that it opens."""
        visits: list[asyncio.Task[None]] = []

        async def visited(address: str) -> None:
            await visit(address)

        def opened(address: str) -> None:
            visits.append(asyncio.create_task(visited(address)))

        browser = Browser(0, opened, wait, asked_every=0.01)
        try:
            if not (self.folder / FLEET).exists():
                chosen = choose(options or self.options(), Asking(accept=True))
                await begin(self.folder, chosen, name, own, browser, self.said.append)
            browser = replace(browser, wait=wait_for_installation)
            return await go_on(self.folder, webhook, browser, self.said.append)
        finally:
            await asyncio.gather(*visits)

    async def create(self, address: str, **changed: str) -> Page:
        """Create the App from the page at an address. Return the page that the owner then sees."""
        confirm = await self.browser.send(await self.browser.open(address))
        return await self.browser.send(confirm, **changed)

    async def create_and_install(self, address: str) -> None:
        await self.browser.send(await self.create(address))

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture
def base_path() -> str:
    return ""


@pytest_asyncio.fixture
async def owner(tmp_path: Path, base_path: str) -> AsyncIterator[Owner]:
    ahead = [0.0]
    github = LabGitHub(
        [],
        ORGANIZATIONS,
        SystemClock(),
        LabGitHubOptions(base_path=base_path),
        wall=lambda: time.time() + ahead[0],
    )
    await github.start()
    try:
        async with aiohttp.ClientSession() as session:
            folder = tmp_path / "fleet"
            folder.mkdir(mode=0o700)
            yield Owner(github, folder, FakeBrowser(session), ahead=ahead)
    finally:
        await github.close()


@pytest_asyncio.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made
