"""What looks at the world beside the loop: a failure of any of it is known to who runs it."""

import asyncio

import pytest

from autoscaler.app.watching import World, make_poller
from autoscaler.controller.guarded_github import GuardedGitHub
from autoscaler.controller.opening import Opening
from autoscaler.controller.quotas import KeptQuotas
from autoscaler.controller.reconciler import Pace, Reconciler
from autoscaler.controller.system import SystemClock
from autoscaler.github.client import GitHubClient
from autoscaler.github.settings import AppKey, GitHubSettings
from autoscaler.model.identifiers import ProviderName
from tests.config.keys import pem, rsa_key
from tests.controller import controllers
from tests.controller.fakes_readings import FakeReadings
from tests.patience import PATIENCE
from tests.planner.fleets import EAST


async def broken(_: ProviderName) -> bool:
    """Opens a provider, with a mistake of ours in it."""
    raise ZeroDivisionError


async def test_an_opening_that_fails_ends_the_loop_with_its_error() -> None:
    clock = SystemClock()
    controller = controllers.Controller(controllers.World())
    await controller.resume()
    store, telemetry = controller.world.store, controller.world.telemetry
    key = AppKey(1, pem(rsa_key()))
    client = GitHubClient(GitHubSettings("https://github.invalid", (key,)), clock, telemetry)
    world = World(store, client, GuardedGitHub(client), {}, telemetry, clock)
    opening = Opening((EAST,), broken, lambda _: None, clock)
    quotas = KeptQuotas({}, FakeReadings(), telemetry, clock)
    poller = make_poller(
        controller.journal, controller.intake, world, clock.now(), quotas, (opening.run,)
    )
    loop = Reconciler(
        controller.journal,
        controller.intake,
        controller.executor,
        poller,
        controller.effects,
        telemetry,
        clock,
        clock,
        Pace(),
    )
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(loop.run(), PATIENCE)
    await client.close()
