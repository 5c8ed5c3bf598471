"""Fuzzes the page of `autoscaler init` behind its socket: Host, path and query of everything on this host.

A code is exchanged at most once, only with the state of this run and under the page's own name. No answer shows
what a stranger sent.
"""

import asyncio
from collections.abc import Sequence
from random import Random
from urllib.parse import quote, urlencode

from aiohttp.test_utils import make_mocked_request

from autoscaler.github.apps.permissions import permissions_for
from autoscaler.setup.app_page import AppPage
from autoscaler.setup.manifest import AppPlan
from tests.fuzz.mutations import mutated_text
from tests.fuzz.target import Finding, Input, described

PLAN = AppPlan("ci", "https://github.com", "acme", False, permissions_for(repository=False))
STATE, HOST = "STATE", "HOST"
"""Stand for the state and the name of the page that gets the request."""

MARK = "<i>stranger"


class AppPageTarget:
    """Sequences of requests, each to a page of its own. `kind` is the page."""

    name = "app_page"

    def __init__(self, kind: type[AppPage] = AppPage) -> None:
        self._kind = kind
        self._runner = asyncio.Runner()

    def draw(self, rng: Random) -> Input:
        """Up to four requests: the name under which the page is called, and the query's pairs."""
        return [_request(rng) for _ in range(rng.randint(1, 4))]

    def tries(self, given: Input) -> int:
        """The requests of the sequence."""
        return len(given)

    def try_all(self, given: Sequence[Input]) -> list[Finding]:
        """See `Target`."""
        return self._runner.run(self._try_all(given))

    def close(self) -> None:
        """Close the loop."""
        self._runner.close()

    async def _try_all(self, given: Sequence[Input]) -> list[Finding]:
        found = []
        for one in given:
            why = await self._wrong(one)
            if why is not None:
                found.append(Finding(one, why))
        return found

    async def _wrong(self, requests: Input) -> str | None:
        codes: list[str] = []

        async def exchange(code: str) -> str:
            codes.append(code)
            return "https://github.com/apps/ci/installations/new"

        page = self._kind(PLAN, exchange, ())
        page.hosts = frozenset({HOST})
        allowed = 0
        for host, pairs in requests:
            own = [(name, page.state if value == STATE else value) for name, value in pairs]
            request = make_mocked_request(
                "GET", f"/?{urlencode(own, quote_via=quote)}", headers={"Host": host}
            )
            first = dict(reversed(own))
            allowed += host == HOST and "code" in first and first.get("state") == page.state
            try:
                answer = await page.handle(request)
            except Exception as error:  # noqa: BLE001 - every error is a finding
                return f"the page crashed: {described(error)}"
            if len(codes) > min(allowed, 1):
                return "a code was exchanged without this run's state, or twice"
            if MARK in (answer.text or ""):
                return "an answer shows what a stranger sent"
        return None if len(codes) == min(allowed, 1) else "GitHub's own answer was refused"


def _request(rng: Random) -> list[object]:
    host = HOST if rng.random() < 0.8 else mutated_text(rng, HOST)
    pairs = [["code", rng.choice(("a", "", MARK, "é"))], ["state", _state(rng)]]
    if rng.random() < 0.3:
        pairs.append([rng.choice(("code", "state", "x")), rng.choice((STATE, MARK, ""))])
    if rng.random() < 0.2:
        del pairs[rng.randrange(len(pairs))]
    rng.shuffle(pairs)
    return [host, pairs]


def _state(rng: Random) -> str:
    return rng.choice((STATE, STATE, STATE, "", MARK, "é" * 43, mutated_text(rng, "x" * 43)))
