"""The pages of the console: reads the address, asks `FleetQueries`, and renders in a thread of its own.

Everything here is behind the sign-in (`ConsoleEndpoint`).
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from aiohttp import web

from autoscaler.console.lists import ListPage
from autoscaler.console.pages import JobPage, MachinePage, Pages, SkuPage
from autoscaler.console.rendering import Frame
from autoscaler.controller.operators.fleet_queries import FleetQueries, UnknownRecordError
from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import JobId, Seconds, SkuName
from autoscaler.model.operators import Operator, OperatorName
from autoscaler.server.operators.compression import compressed
from autoscaler.server.operators.filters import (
    JOB_FILTERS,
    MACHINE_FILTERS,
    MAX_ROWS,
    chosen_jobs,
    chosen_labels,
    chosen_machines,
    chosen_part,
    chosen_repository,
    jobs_in_state,
    last_page,
    only,
)
from autoscaler.server.operators.queries import job_with_past
from autoscaler.views.jobs.explanation import explain_labels
from autoscaler.views.jobs.lists import JobFilter, running_jobs, waiting_jobs
from autoscaler.views.listed import Listed, Part
from autoscaler.views.machines import MachineFilter, machines
from autoscaler.views.offerings import offerings_of
from autoscaler.views.overview import Overview
from autoscaler.views.quotas import quotas_of

ROWS = 100
"""Jobs or machines on one page."""

REUSED_FOR: Seconds = 1.0
"""How long the fleet's state is used again, and the first page for the same reader: many tabs are open during
an incident."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_JOB = re.compile(r"[0-9]{1,18}")
_REPOSITORY_PART = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_JOB_PAGE = re.compile(
    r"https?://[^/]+/[^/]+/[^/]+/actions/runs/[0-9]+(?:/attempts/[0-9]+)?/job/([0-9]+)"
)

_Row = TypeVar("_Row")

_Page = Callable[[web.Request, Operator], Awaitable[str]]


class MissingPageError(Exception):
    """There is no page at this address. The text says what is not known."""


class ConsolePages:
    """The pages by address.

    Each may raise MalformedRequestError, UnknownNameError, MissingPageError and StoreError.
    """

    def __init__(self, queries: FleetQueries, pages: Pages) -> None:
        self._queries = queries
        self._pages = pages
        # One thread: pages wait for one another, and the event loop competes with one of them only.
        self._renderer = ThreadPoolExecutor(1, "console")
        self._seen: Overview | None = None
        self._seen_at = float("-inf")
        self._first: dict[OperatorName, asyncio.Task[str]] = {}

    def routes(self) -> dict[str, _Page]:
        """Return the pages by their routes."""
        return {
            "/": self._overview,
            "/skus/{sku}": self._sku,
            "/jobs": self._jobs,
            "/jobs/{job}": self._job,
            "/machines": self._machines,
            "/machines/{machine}": self._machine,
            "/explain": self._explain,
            "/repositories": self._repositories,
            "/repositories/{owner}/{name}": self._grid,
            "/cost": self._cost,
            "/faults": self._faults,
            "/runbooks/{name}": self._runbook,
        }

    def frame(self, operator: Operator) -> Frame:
        """Return what is around each page of this reader, as of now."""
        return self._pages.frame(operator.name, self._queries.now())

    def find(self, text: str) -> str | None:
        """Return the address of the page about a job, SKU, machine or runner, or None."""
        text = text.strip()
        page = _JOB_PAGE.match(text)
        if page is not None or _JOB.fullmatch(text):
            return f"/jobs/{page[1] if page is not None else text}"
        if _NAME.fullmatch(text) is None:
            return None
        if any(sku.sku == text for sku in self._queries.status().skus):
            return f"/skus/{text}"
        machine = self._queries.machine(text)
        return f"/machines/{machine.id}" if machine is not None else None

    async def compressed(self, page: str) -> bytes:
        """Return a page as gzip, made in the thread of the pages."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._renderer, compressed, page)

    async def close(self, _: web.Application) -> None:
        """End the thread."""
        self._renderer.shutdown(wait=False, cancel_futures=True)

    def _state(self) -> Overview:
        """Return the state of the fleet, which is at most `REUSED_FOR` old."""
        now = asyncio.get_running_loop().time()
        if self._seen is None or now - self._seen_at >= REUSED_FOR:
            self._seen, self._seen_at, self._first = self._queries.overview(), now, {}
        return self._seen

    async def _overview(self, _: web.Request, operator: Operator) -> str:
        seen = self._state()
        rendering = self._first.get(operator.name)
        if rendering is None:
            work = self._render(operator, self._pages.overview, seen)
            rendering = asyncio.get_running_loop().create_task(work)
            self._first[operator.name] = rendering
        return await asyncio.shield(rendering)

    async def _sku(self, request: web.Request, operator: Operator) -> str:
        name = _segment(request, "sku", _NAME)
        seen = self._state()
        known = next((one for one in seen.status.skus if one.sku == name), None)
        if known is None:
            raise MissingPageError(f"fleet.yaml has no SKU {name}.")
        await asyncio.sleep(0)
        sku, fleet, waiting = SkuName(name), self._queries.fleet(), self._queries.waiting
        part = Part(0, ROWS)
        page = SkuPage(
            seen,
            known,
            tuple(offerings_of(fleet, (sku,))),
            tuple(quotas_of(fleet, sku)),
            waiting_jobs(fleet, waiting, JobFilter(sku), part).rows,
            running_jobs(fleet, waiting, JobFilter(sku), part).rows,
            self._queries.with_image_names(machines(fleet, MachineFilter(sku), part).rows),
        )
        return await self._render(operator, self._pages.sku, page)

    async def _jobs(self, request: web.Request, operator: Operator) -> str:
        query = _given(request, JOB_FILTERS)
        state, chosen = chosen_jobs(query, self._queries)
        part = chosen_part(query, ROWS)
        found = jobs_in_state(self._queries, state, chosen, part)
        page = self._list_page("/jobs", query, found, part)
        return await self._render(operator, self._pages.jobs, page, state.value)

    async def _job(self, request: web.Request, operator: Operator) -> str:
        job = JobId(int(_segment(request, "job", _JOB)))
        explained, past = await job_with_past(self._queries, job)
        known = explained.job if explained is not None else None
        rows = await self._history(str(job))
        if known is None and not rows:
            raise MissingPageError(
                f"Job {job} is unknown: no scope covers its repository, or its history was deleted."
            )
        page = JobPage(job, known, explained, past, rows)
        return await self._render(operator, self._pages.job, page)

    async def _machines(self, request: web.Request, operator: Operator) -> str:
        query = _given(request, MACHINE_FILTERS)
        chosen, part = chosen_machines(query, self._queries), chosen_part(query, ROWS)
        found = machines(self._queries.fleet(), chosen, part)
        page = self._list_page("/machines", query, found, part)
        return await self._render(operator, self._pages.machines, page)

    async def _machine(self, request: web.Request, operator: Operator) -> str:
        name = _segment(request, "machine", _NAME)
        known, rows = self._queries.machine(name), await self._history(name)
        if known is None and not rows:
            raise MissingPageError(f"No machine {name} is known, or its history was deleted.")
        page = MachinePage(name, known, rows)
        return await self._render(operator, self._pages.machine, page)

    async def _explain(self, request: web.Request, operator: Operator) -> str:
        found = None
        if request.query.get("labels"):
            labels = chosen_labels(request.query)
            repository = chosen_repository(request.query)
            found = explain_labels(self._queries.fleet(), repository, labels)
        return await self._render(operator, self._pages.explain, found)

    async def _repositories(self, _: web.Request, operator: Operator) -> str:
        found = self._queries.repositories()[:MAX_ROWS]
        return await self._render(operator, self._pages.repositories, found)

    async def _grid(self, request: web.Request, operator: Operator) -> str:
        owner = _segment(request, "owner", _REPOSITORY_PART)
        name = _segment(request, "name", _REPOSITORY_PART)
        found = self._queries.grid(f"{owner}/{name}")
        return await self._render(operator, self._pages.grid, found)

    async def _cost(self, _: web.Request, operator: Operator) -> str:
        return await self._render(operator, self._pages.cost, self._queries.cost())

    async def _faults(self, _: web.Request, operator: Operator) -> str:
        return await self._render(operator, self._pages.faults, await self._queries.faults())

    async def _runbook(self, request: web.Request, operator: Operator) -> str:
        page = self._pages.runbook(_segment(request, "name", _NAME), self.frame(operator))
        if page is None:
            raise MissingPageError("There is no runbook of this name.")
        return page

    def _list_page(
        self, path: str, query: Mapping[str, str], found: Listed[_Row], part: Part
    ) -> ListPage[_Row]:
        skus = self._queries.fleet().catalogue.skus
        providers = {option.provider for sku in skus.values() for option in sku.launch_options}
        names = {"sku": tuple(sorted(skus)), "provider": tuple(sorted(providers))}
        return ListPage(path, query, found, part, last_page(part.limit), names)

    async def _history(self, name: str) -> tuple[HistoryRow, ...]:
        try:
            return tuple(await self._queries.history(name))
        except UnknownRecordError:
            return ()

    async def _render(self, operator: Operator, page: Callable[..., str], *shown: object) -> str:
        """Return a page with what it shows and the frame of this reader."""
        work = partial(page, *shown, self.frame(operator))
        return await asyncio.get_running_loop().run_in_executor(self._renderer, work)


def _given(request: web.Request, keys: Collection[str]) -> dict[str, str]:
    """Return the parameters of a query that have a value: a form sends its empty fields, too.

    Raises: MalformedRequestError for another parameter than these.
    """
    only(request.query, keys)
    return {name: value for name, value in request.query.items() if value}


def _segment(request: web.Request, name: str, allowed: re.Pattern[str]) -> str:
    text = request.match_info[name]
    if allowed.fullmatch(text) is None:
        raise MissingPageError("There is no page at this address.")
    return text
