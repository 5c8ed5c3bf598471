"""Pages of lists that GitHub has answered before, asked for again by their ETag.

An answer of 304 costs nothing of the hourly limit (docs.github.com: best practices for the REST
API, conditional requests). ETags are one caller's own. It keeps what was read, so that an
unchanged list is as good as a new one; never what a page means.
"""

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar, cast

from pydantic import BaseModel

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import RetryLaterError
from autoscaler.github.api import Api, Caller, read_as
from autoscaler.github.exchange import Request
from autoscaler.github.policies import UNCHANGED
from autoscaler.github.refusals import OUTAGE_DELAY, NotShownError
from autoscaler.model.identifiers import Instant, Seconds

MOST_KEPT = 20_000
"""Pages. What was not asked for lately goes first."""

KEPT_FOR: Seconds = 3600.0
"""After its last use. A job is 2 kB, and the runs that are over are many: nobody asks of them."""

MAX_PAGES = 200
"""Of one list: GitHub shows at most 1,000 runs of a state, and 10,000 runners fit into a group."""

_ETAG = re.compile(r'(?:W/)?"[!#-~]{0,200}"', re.ASCII)

Shape = TypeVar("Shape", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class _Page:
    etag: str
    content: BaseModel
    next_url: str | None
    used_at: Instant


@dataclass(frozen=True, slots=True)
class Pages(Generic[Shape]):
    """A whole list, page by page; `calls` is how many of its answers counted."""

    pages: tuple[Shape, ...]
    calls: int


class KnownPages:
    """Reads lists for all callers; belongs to one GitHub."""

    def __init__(self, api: Api, url_of: Callable[[Request], str], clock: Clock) -> None:
        self._api = api
        self._url_of = url_of
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str], _Page] = OrderedDict()

    async def read(
        self, request: Request, caller: Caller, shape: type[Shape], most: int = MAX_PAGES
    ) -> Pages[Shape]:
        """Every page of a list, `most` at most. Raises as `Api.ask`, and NotShownError for a 404."""
        pages: list[Shape] = []
        calls = 0
        seen: set[str] = set()
        while True:
            url = self._url_of(request)
            if url in seen or len(seen) >= MAX_PAGES:
                raise RetryLaterError(f"{request.endpoint}: pages without end", OUTAGE_DELAY)
            seen.add(url)
            content, next_url, counted = await self._page(request, url, caller, shape)
            pages.append(content)
            calls += counted
            if next_url is None or len(pages) >= most:
                return Pages(tuple(pages), calls)
            request = request.at(next_url)

    async def _page(
        self, request: Request, url: str, caller: Caller, shape: type[Shape]
    ) -> tuple[Shape, str | None, int]:
        key = (caller.name, url)
        kept = self._kept.get(key)
        asked = replace(request, etag=kept.etag) if kept is not None else request
        answer = await self._api.ask(asked, caller)
        if answer.status == UNCHANGED and kept is not None:
            self._keep(key, replace(kept, used_at=self._clock.now()))
            return cast(Shape, kept.content), kept.next_url, 0
        if not answer.ok:
            raise NotShownError(f"{request.endpoint}: {answer.status} {answer.message}")
        content = read_as(shape, request, answer)
        etag = answer.headers.get("etag", "")
        if _ETAG.fullmatch(etag) is None:
            self._kept.pop(key, None)
        else:
            self._keep(key, _Page(etag, content, answer.next_url, self._clock.now()))
        return content, answer.next_url, 1

    def _keep(self, key: tuple[str, str], page: _Page) -> None:
        self._kept[key] = page
        self._kept.move_to_end(key)
        oldest = next(iter(self._kept.values()))
        while len(self._kept) > MOST_KEPT or page.used_at - oldest.used_at > KEPT_FOR:
            self._kept.popitem(last=False)
            oldest = next(iter(self._kept.values()))
