"""The questions under /admin: status, jobs, machines, history and explain. See docs/operations.md.

Reads the query of a request, and answers in JSON. `AdminEndpoint` checks tokens.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from aiohttp import web

from autoscaler.controller.operators.fleet_queries import FleetQueries, UnknownRecordError
from autoscaler.model.identifiers import JobId
from autoscaler.model.reasons.waiting import Reason
from autoscaler.server.answers import json_answer
from autoscaler.server.operators.filters import (
    JOB_FILTERS,
    MACHINE_FILTERS,
    SPENDING,
    MalformedRequestError,
    UnknownNameError,
    chosen_jobs,
    chosen_labels,
    chosen_machines,
    chosen_part,
    chosen_repository,
    chosen_spending,
    jobs_in_state,
    only,
)
from autoscaler.views.jobs.explanation import Explanation, explain_labels
from autoscaler.views.jobs.past import Past
from autoscaler.views.machines import machines

_ROWS = 50
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")

Handler = Callable[[web.Request], Awaitable[web.Response]]


def as_json(view: Any) -> Any:
    """Return a view as JSON has it, as `asdict` does. A reason has its message, too."""
    if is_dataclass(view):
        found = {one.name: as_json(getattr(view, one.name)) for one in fields(view)}
        return found | ({"message": view.message} if isinstance(view, Reason) else {})
    if isinstance(view, Mapping):
        return {key: as_json(value) for key, value in view.items()}
    return [as_json(one) for one in view] if isinstance(view, tuple | list) else view


class Queries:
    """The handlers of the questions."""

    def __init__(self, queries: FleetQueries) -> None:
        self._queries = queries

    def routes(self) -> dict[str, Handler]:
        """Return the handlers by path.

        Each raises MalformedRequestError, UnknownNameError and StoreError.
        """
        return {
            "/admin/status": self._status,
            "/admin/jobs": self._jobs,
            "/admin/machines": self._machines,
            "/admin/explain": self._explain,
            "/admin/history/{name}": self._history,
            "/admin/faults": self._faults,
            "/admin/cost": self._cost,
        }

    async def _status(self, request: web.Request) -> web.Response:
        only(request.query, set())
        return json_answer(200, as_json(self._queries.status()))

    async def _jobs(self, request: web.Request) -> web.Response:
        only(request.query, {*JOB_FILTERS, "limit"})
        state, chosen = chosen_jobs(request.query, self._queries)
        found = jobs_in_state(self._queries, state, chosen, chosen_part(request.query, _ROWS))
        return self._answer(jobs=as_json(found.rows), total=found.total, counts=dict(found.counts))

    async def _machines(self, request: web.Request) -> web.Response:
        only(request.query, {*MACHINE_FILTERS, "limit"})
        chosen = chosen_machines(request.query, self._queries)
        found = machines(self._queries.fleet(), chosen, chosen_part(request.query, _ROWS))
        return self._answer(
            machines=as_json(self._queries.with_image_names(found.rows)),
            total=found.total,
            counts=dict(found.counts),
        )

    async def _explain(self, request: web.Request) -> web.Response:
        only(request.query, {"job", "labels", "repository"})
        if not request.query:
            raise MalformedRequestError("`job` or `labels` must be given")
        if "job" not in request.query:
            labels, repository = chosen_labels(request.query), chosen_repository(request.query)
            found = explain_labels(self._queries.fleet(), repository, labels)
            return self._answer(explanation=as_json(found), past=as_json(Past()), history=[])
        job = request.query["job"]
        if not (job.isascii() and job.isdigit() and len(job) <= 18):
            raise MalformedRequestError("`job` must be the number of a job")
        explained, past = await job_with_past(self._queries, JobId(int(job)))
        try:
            rows = await self._queries.history(job)
        except UnknownRecordError:
            rows = []
        if explained is None and not rows:
            raise UnknownNameError(
                f"no job {job} is known: it is of no scope, or its history was deleted"
            )
        said = as_json(explained) if explained is not None else None
        return self._answer(
            explanation=said, past=as_json(past), history=[as_json(row) for row in rows]
        )

    async def _faults(self, request: web.Request) -> web.Response:
        only(request.query, set())
        return self._answer(faults=as_json(list(await self._queries.faults())))

    async def _cost(self, request: web.Request) -> web.Response:
        only(request.query, SPENDING)
        days, by = chosen_spending(request.query)
        return self._answer(**as_json(await self._queries.spending(days, by)))

    async def _history(self, request: web.Request) -> web.Response:
        only(request.query, set())
        name = request.match_info["name"]
        if _NAME.fullmatch(name) is None:
            raise MalformedRequestError(
                "ID must be that of a job, machine, runner or launch request, or the name of a SKU, "
                "provider or installation, or all"
            )
        try:
            rows = await self._queries.history(name)
        except UnknownRecordError:
            raise UnknownNameError(f"no history of {name} is kept") from None
        return json_answer(200, {"history": [as_json(row) for row in rows]})

    def _answer(self, **parts: object) -> web.Response:
        """Return an answer whose reader needs the controller's time: it has ages, or moments to come."""
        return json_answer(200, {"at": self._queries.now(), **parts})


async def job_with_past(queries: FleetQueries, job: JobId) -> tuple[Explanation | None, Past]:
    """Return what is known about a job, from memory or the store, and its past. Raises: StoreError."""
    return queries.explain(job) or await queries.ended(job), await queries.past(job)
