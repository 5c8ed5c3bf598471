"""Writes the screenshots of docs/console: `make screenshots`."""

import asyncio
from pathlib import Path
from typing import Literal

from playwright.async_api import Browser

from autoscaler.views.jobs.lists import JobFilter, waiting_jobs
from autoscaler.views.listed import Part
from autoscaler.views.machines import MachineFilter, machines
from tests.console.browser import DESKTOP, PHONE, browser, sign_in, tab
from tests.console.scenes import A10G, NO_CAPACITY, Behaviour, Scene, pytorch
from tests.console.serving import Console, served

FOLDER = Path(__file__).parents[2] / "docs" / "console"

Scheme = Literal["light", "dark"]


async def afternoon(scene: Scene) -> None:
    """A busy afternoon, at whose end one zone after the other runs out of one instance type."""
    for _ in range(34):
        await scene.push()
        await asyncio.sleep(600)
    scene.refused[A10G] = NO_CAPACITY
    for _ in range(3):
        await scene.push()
        await asyncio.sleep(300)


def played() -> Scene:
    """Return the scene of the screenshots."""
    behaviours = {A10G: Behaviour(work=1800.0)}
    return Scene(pytorch(cpus=9), behaviours=behaviours).play(afternoon)


async def main() -> None:
    """Write every screenshot."""
    scene = await asyncio.to_thread(played)
    oldest = waiting_jobs(
        scene.queries.fleet(), scene.queries.waiting, JobFilter(), Part(0, 1)
    ).rows[0]
    waiting, repository = oldest.id, oldest.repository
    machine = next(iter(machines(scene.queries.fleet(), MachineFilter(), Part(0, 1)).rows)).id
    shots: tuple[tuple[str, str, tuple[int, int], Scheme], ...] = (
        ("overview", "/", DESKTOP, "light"),
        ("overview-dark", "/", DESKTOP, "dark"),
        ("overview-phone", "/", PHONE, "light"),
        ("waiting-job", f"/jobs/{waiting}", DESKTOP, "light"),
        ("sku", f"/skus/{A10G}", DESKTOP, "light"),
        ("machine", f"/machines/{machine}", DESKTOP, "dark"),
        ("repository", f"/repositories/{repository}", DESKTOP, "light"),
    )
    FOLDER.mkdir(exist_ok=True)
    async with served(scene.queries) as console, browser() as started:
        for name, path, size, scheme in shots:
            await shoot(started, console, name, path, size, scheme)


async def shoot(
    started: Browser, console: Console, name: str, path: str, size: tuple[int, int], scheme: Scheme
) -> None:
    """Write one screenshot."""
    async with tab(started, console, size, scheme=scheme) as one:
        await sign_in(one, path)
        await one.page.get_by_text("Live.").wait_for()
        await one.page.screenshot(path=FOLDER / f"{name}.png", full_page=size == PHONE)


if __name__ == "__main__":
    asyncio.run(main())
