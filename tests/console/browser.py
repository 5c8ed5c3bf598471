"""A real headless Chromium, driven by Playwright. `CHROMIUM` names the program; default: that of Debian."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from tests.console.serving import READER, Console
from tests.patience import PATIENCE

_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--font-render-hinting=none",
)
"""As root, Chromium needs --no-sandbox. The others keep it from calling its maker."""

PHONE, DESKTOP = (390, 844), (1280, 860)


def chromium() -> Path:
    """Return the program. Raises FileNotFoundError with the command that installs it."""
    named = os.environ.get("CHROMIUM")
    found = shutil.which(named or "chromium")
    if found is None:
        raise FileNotFoundError(
            f"CHROMIUM={named} is no program"
            if named
            else "Chromium is missing: run scripts/bootstrap.sh as root (or apt-get install chromium)"
        )
    return Path(found)


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Start a browser with a new profile."""
    program = chromium()
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(
            executable_path=program, args=list(_FLAGS), timeout=1000 * PATIENCE
        )
        try:
            yield started
        finally:
            await started.close()


class Tab:
    """A page, and what its browser complained about: errors, warnings and refused policies."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("pageerror", lambda error: self._note("error", str(error)))

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    async def width(self) -> tuple[int, int]:
        """Return the widths of the content and of the window, in pixels of CSS."""
        both = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        content, window = await self.page.evaluate(both)
        return content, window

    async def inaccessible(self) -> list[str]:
        """Return what axe-core finds that readers with a disability cannot use: WCAG and best practices."""
        found = await Axe().run(self.page)
        return [
            f"{one['id']}: {one['help']}: {node['html']}"
            for one in found.response["violations"]
            for node in one["nodes"]
        ]


@asynccontextmanager
async def tab(
    started: Browser,
    console: Console,
    size: tuple[int, int] = DESKTOP,
    *,
    scheme: Literal["light", "dark"] = "light",
    scripts: bool = True,
) -> AsyncIterator[Tab]:
    """Open a tab with a session of its own."""
    context: BrowserContext = await started.new_context(
        base_url=console.url,
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,
        java_script_enabled=scripts,
    )
    context.set_default_timeout(1000 * PATIENCE)
    try:
        yield Tab(await context.new_page())
    finally:
        await context.close()


async def sign_in(one: Tab, path: str = "/", token: str = READER) -> None:
    """Open a page, and sign in on the form that it shows."""
    await one.page.goto(path)
    await one.page.get_by_label("Token").fill(token)
    await one.page.get_by_role("button", name="Sign in").click()
    await one.page.locator("footer").wait_for()
