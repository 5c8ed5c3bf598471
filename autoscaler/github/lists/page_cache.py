"""Caches the pages of GitHub's lists, and requests them again with their ETags.

A 304 answer does not count against the hourly limit (docs.github.com: best practices for the REST
API, conditional requests). Each caller has its own ETags. The cache keeps the items of each page, so
that the reader gets the whole list although some pages have not changed.
"""

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar, cast

from pydantic import BaseModel

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import RetryLaterError
from autoscaler.controller.ports.github_lists import MOST_REPOSITORIES
from autoscaler.github.requests.api import Api, Caller, read_as
from autoscaler.github.requests.exchange import Request
from autoscaler.github.requests.outcomes import OUTAGE_DELAY, UNCHANGED, not_shown
from autoscaler.model.identifiers import Instant, Seconds

PER_PAGE = 100
"""Items; GitHub's maximum."""

PAGE, ITEM, JOB = 800, 200, 760
"""Bytes in memory, measured: of a page without its items, of a run or another item, and of a running
job with its names and commit. A completed run takes 100, and a run with its time up to 400."""

MAX_BYTES = 2 * MOST_REPOSITORIES * (PAGE + PER_PAGE * ITEM) + 60_000 * JOB
"""254 MB: the newest runs of all watched repositories, for two Apps, and 60,000 jobs. The least
recently used pages are dropped first. Repositories are read in turn, so a smaller cache would drop
most pages before their next use."""

MAX_AGE: Seconds = 3600.0
"""Since its last use. Jobs of completed runs are not read again, and there are many."""

MAX_PAGES = 200
"""Pages of one list: GitHub shows at most 10,000 runners in a group."""

FILTERED_PAGES = 10
"""Pages that GitHub shows of a list of runs with a filter: 1,000 runs (docs.github.com, REST "Workflow runs";
github.blog, changelog of 2026-09-25)."""

_ETAG = re.compile(r'(?:W/)?"[!#-~]{0,200}"', re.ASCII)

Shape = TypeVar("Shape", bound=BaseModel)
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class PageFormat(Generic[Shape, Item]):
    """The shape of a page, the function that returns its items, and the bytes of an item."""

    shape: type[Shape]
    items: Callable[[Shape], tuple[Item, ...]]
    size: int = ITEM


@dataclass(frozen=True, slots=True)
class _Page:
    etag: str
    items: tuple[object, ...]
    next_url: str | None
    used_at: Instant
    size: int


@dataclass(frozen=True, slots=True)
class Pages(Generic[Item]):
    """A list. `calls` are the requests that counted against the limit; `whole`: it has all pages."""

    items: tuple[Item, ...]
    calls: int
    pages: int
    whole: bool


class PageCache:
    """Reads lists of one GitHub instance for all callers, and caches at most `max_bytes`."""

    def __init__(
        self,
        api: Api,
        url_of: Callable[[Request], str],
        clock: Clock,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._api = api
        self._url_of = url_of
        self._clock = clock
        self._max_bytes = max_bytes
        self._cached: OrderedDict[tuple[str, str], _Page] = OrderedDict()
        self._size = 0

    async def read(
        self,
        request: Request,
        caller: Caller,
        page_format: PageFormat[Shape, Item],
        most: int = MAX_PAGES,
    ) -> Pages[Item]:
        """Return at most `most` pages of a list. Raises as `Api.ask`, and NotShownError for a 404."""
        items: list[Item] = []
        calls = 0
        seen: set[str] = set()
        while True:
            url = self._url_of(request)
            if url in seen:
                text = f"{request.endpoint}: the links to the next pages never end"
                raise RetryLaterError(text, OUTAGE_DELAY)
            seen.add(url)
            found, next_url, counted = await self._page(request, url, caller, page_format)
            items += found
            calls += counted
            if next_url is None or len(seen) >= most:
                return Pages(tuple(items), calls, len(seen), whole=next_url is None)
            request = request.at(next_url)

    async def _page(
        self, request: Request, url: str, caller: Caller, page_format: PageFormat[Shape, Item]
    ) -> tuple[tuple[Item, ...], str | None, int]:
        key = (caller.name, url)
        cached = self._cached.get(key)
        conditional = replace(request, etag=cached.etag) if cached is not None else request
        answer = await self._api.ask(conditional, caller)
        if answer.status == UNCHANGED and cached is not None:
            self._keep(key, replace(cached, used_at=self._clock.now()))
            return cast(tuple[Item, ...], cached.items), cached.next_url, 0
        if not answer.ok:
            raise not_shown(request, answer)
        items = page_format.items(read_as(page_format.shape, request, answer))
        etag = answer.headers.get("etag", "")
        if _ETAG.fullmatch(etag) is None:
            self._drop(key)
        else:
            size = PAGE + page_format.size * len(items)
            self._keep(key, _Page(etag, items, answer.next_url, self._clock.now(), size))
        return items, answer.next_url, 1

    def _keep(self, key: tuple[str, str], page: _Page) -> None:
        self._drop(key)
        self._cached[key] = page
        self._size += page.size
        while self._cached:
            oldest, last = next(iter(self._cached.items()))
            if self._size <= self._max_bytes and page.used_at - last.used_at <= MAX_AGE:
                break
            self._drop(oldest)

    def _drop(self, key: tuple[str, str]) -> None:
        page = self._cached.pop(key, None)
        if page is not None:
            self._size -= page.size
