"""Pages of lists that GitHub has answered before, asked for again by their ETag.

An answer of 304 costs nothing of the hourly limit (docs.github.com: best practices for the REST
API, conditional requests). ETags are one caller's own. It keeps what each page came to, so that an
unchanged list is as good as a new one, and never a page itself: what it means is its reader's to say.
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
from autoscaler.github.api import Api, Caller, read_as
from autoscaler.github.exchange import Request
from autoscaler.github.policies import UNCHANGED
from autoscaler.github.refusals import OUTAGE_DELAY, NotShownError
from autoscaler.model.identifiers import Instant, Seconds

PER_PAGE = 100
"""GitHub's most."""

PAGE, ITEM, JOB = 800, 200, 620
"""Bytes in memory, measured: of a page without its items, of a run or other item, and of a job at
work with its names. A run that is over takes 100."""

MOST_KEPT = 2 * MOST_REPOSITORIES * (PAGE + PER_PAGE * ITEM) + 60_000 * JOB
"""Bytes: 245 MB. The newest runs of as many repositories as are looked at, for two Apps, and jobs.
Repositories are read in turn, so that with less hardly a page would live until it is asked for
again: what was not asked for lately goes first."""

KEPT_FOR: Seconds = 3600.0
"""After its last use. The runs that are over are many: nobody asks for their jobs again."""

MAX_PAGES = 200
"""Of one list: GitHub shows at most 1,000 runs of a state, and 10,000 runners fit into a group."""

_ETAG = re.compile(r'(?:W/)?"[!#-~]{0,200}"', re.ASCII)

Shape = TypeVar("Shape", bound=BaseModel)
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Form(Generic[Shape, Item]):
    """What a page looks like, and the items that it comes to, of so many bytes each."""

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
    """A list; `calls` is how many of its answers counted. Not `whole`: there are more pages."""

    items: tuple[Item, ...]
    calls: int
    whole: bool


class KnownPages:
    """Reads lists for all callers; belongs to one GitHub. `most_kept` is in bytes."""

    def __init__(
        self,
        api: Api,
        url_of: Callable[[Request], str],
        clock: Clock,
        most_kept: int = MOST_KEPT,
    ) -> None:
        self._api = api
        self._url_of = url_of
        self._clock = clock
        self._most_kept = most_kept
        self._kept: OrderedDict[tuple[str, str], _Page] = OrderedDict()
        self._size = 0

    async def read(
        self, request: Request, caller: Caller, form: Form[Shape, Item], most: int = MAX_PAGES
    ) -> Pages[Item]:
        """The pages of a list, `most` at most. Raises as `Api.ask`, and NotShownError for a 404."""
        items: list[Item] = []
        calls = 0
        seen: set[str] = set()
        while True:
            url = self._url_of(request)
            if url in seen:
                raise RetryLaterError(f"{request.endpoint}: pages without end", OUTAGE_DELAY)
            seen.add(url)
            found, next_url, counted = await self._page(request, url, caller, form)
            items += found
            calls += counted
            if next_url is None or len(seen) >= most:
                return Pages(tuple(items), calls, whole=next_url is None)
            request = request.at(next_url)

    async def _page(
        self, request: Request, url: str, caller: Caller, form: Form[Shape, Item]
    ) -> tuple[tuple[Item, ...], str | None, int]:
        key = (caller.name, url)
        kept = self._kept.get(key)
        asked = replace(request, etag=kept.etag) if kept is not None else request
        answer = await self._api.ask(asked, caller)
        if answer.status == UNCHANGED and kept is not None:
            self._keep(key, replace(kept, used_at=self._clock.now()))
            return cast(tuple[Item, ...], kept.items), kept.next_url, 0
        if not answer.ok:
            raise NotShownError(f"{request.endpoint}: {answer.status} {answer.message}")
        items = form.items(read_as(form.shape, request, answer))
        etag = answer.headers.get("etag", "")
        if _ETAG.fullmatch(etag) is None:
            self._drop(key)
        else:
            size = PAGE + form.size * len(items)
            self._keep(key, _Page(etag, items, answer.next_url, self._clock.now(), size))
        return items, answer.next_url, 1

    def _keep(self, key: tuple[str, str], page: _Page) -> None:
        self._drop(key)
        self._kept[key] = page
        self._size += page.size
        while self._kept:
            oldest, last = next(iter(self._kept.items()))
            if self._size <= self._most_kept and page.used_at - last.used_at <= KEPT_FOR:
                break
            self._drop(oldest)

    def _drop(self, key: tuple[str, str]) -> None:
        page = self._kept.pop(key, None)
        if page is not None:
            self._size -= page.size
