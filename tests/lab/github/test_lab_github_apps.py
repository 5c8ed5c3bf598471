"""Several Apps on one GitHub: tokens, limits and webhooks of their own."""

import aiohttp
import pytest

from lab.github.server import LabGitHub
from lab.github.settings import LabApp, LabGitHubOptions, Limits
from tests.lab.github.conftest import ORGANIZATIONS
from tests.lab.github.harness import APP, SECRET, Client, HandClock, Key, Listener, job

SECOND = APP + 1


@pytest.mark.case(
    "several Apps share the registrations",
    topic="GitHub's REST API",
    source="GAR rate-limits-and-tuning.md",
)
async def test_apps_share_only_their_runners(
    key: Key, clock: HandClock, listener: Listener
) -> None:
    apps = [LabApp(APP, key.public, SECRET), LabApp(SECOND, key.public, "other", listener.url)]
    options = LabGitHubOptions(limits=Limits(registrations_per_hour=2))
    lab = LabGitHub(apps, ORGANIZATIONS, clock, options)
    await lab.start()
    try:
        async with aiohttp.ClientSession() as session:
            first, second = Client(lab, key, session), SecondApp(lab, key, session)
            assert await first.token() != await second.token()
            assert [(await first.register(name)).status for name in "abc"] == [201, 201, 403]
            assert (await second.register("a")).status == 409
            assert (await second.register("c")).status == 201
            shown = (await first.ask("GET", "/orgs/acme/actions/runners")).json["runners"]
            assert [one["name"] for one in shown] == ["a", "b", "c"]
            (theirs,) = (await first.as_app("GET", "/app/installations?per_page=1")).json
            path = f"/app/installations/{theirs['id']}/access_tokens"
            assert (await second.as_app("POST", path)).status == 404
            lab.push([job()])
            await lab.delivered()
            assert lab.delivery_log(APP) == []
            assert [one.message.event for one in lab.delivery_log(SECOND)] == [
                "ping",
                "workflow_job",
            ]
    finally:
        await lab.close()


class SecondApp(Client):
    """The other App, which has the same key."""

    def jwt(self, **claims: object) -> str:
        return super().jwt(**{"iss": str(SECOND), **claims})
