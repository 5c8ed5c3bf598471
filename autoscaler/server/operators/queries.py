"""The questions under /admin: status, jobs, machines, history and explain. See docs/operations.md.

Reads the query of a request, and answers in JSON. `AdminEndpoint` checks tokens.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from aiohttp import web

from autoscaler.controller.operators.fleet_queries import FleetQueries, UnknownRecordError
from autoscaler.model.identifiers import JobId, SkuName
from autoscaler.model.machines.machine import MachineState
from autoscaler.model.reasons.waiting import Reason
from autoscaler.server.answers import json_answer
from autoscaler.views.explanation import Explanation, explain_labels
from autoscaler.views.jobs import JobView, running_jobs, unmatched_jobs, waiting_jobs
from autoscaler.views.machines import knows_sku, machines
from autoscaler.views.past import Past

MAX_ROWS = 250
"""Maximum number of jobs or machines in one answer: it takes 10 ms of the event loop."""

_ROWS = 50
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
_MAX_LABELS = 32

Handler = Callable[[web.Request], Awaitable[web.Response]]


def as_json(view: Any) -> Any:
    """Return a view as JSON has it, as `asdict` does. A reason has its message, too."""
    if is_dataclass(view):
        found = {one.name: as_json(getattr(view, one.name)) for one in fields(view)}
        return found | ({"message": view.message} if isinstance(view, Reason) else {})
    if isinstance(view, Mapping):
        return {key: as_json(value) for key, value in view.items()}
    return [as_json(one) for one in view] if isinstance(view, tuple | list) else view


class MalformedRequestError(Exception):
    """A part of the request cannot be used. The text names it and says what is allowed."""


class UnknownNameError(Exception):
    """Nothing has the name in the request. The text says where to find names."""


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
        }

    async def _status(self, request: web.Request) -> web.Response:
        _only(request, set())
        return json_answer(200, as_json(self._queries.status()))

    async def _jobs(self, request: web.Request) -> web.Response:
        _only(request, {"sku", "state", "limit"})
        state = request.query.get("state", "waiting")
        found = jobs_in_state(
            self._queries, state, chosen_sku(request, self._queries), _limit(request)
        )
        return self._answer(jobs=[as_json(job) for job in found])

    async def _machines(self, request: web.Request) -> web.Response:
        _only(request, {"sku", "state", "limit"})
        state = request.query.get("state")
        if state is not None and state not in set(MachineState):
            raise MalformedRequestError(f"`state` must be one of {', '.join(MachineState)}")
        chosen = MachineState(state) if state is not None else None
        sku = chosen_sku(request, self._queries)
        found = machines(self._queries.fleet(), sku, chosen, _limit(request))
        return self._answer(machines=[as_json(machine) for machine in found])

    async def _explain(self, request: web.Request) -> web.Response:
        _only(request, {"job", "labels", "repository"})
        if not request.query:
            raise MalformedRequestError("`job` or `labels` must be given")
        if "job" not in request.query:
            labels, repository = chosen_labels(request), chosen_repository(request)
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

    async def _history(self, request: web.Request) -> web.Response:
        _only(request, set())
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


def jobs_in_state(
    queries: FleetQueries, state: str, sku: SkuName | None, limit: int
) -> Sequence[JobView]:
    """Return jobs that wait, run, or match no SKU. Raises MalformedRequestError for another state."""
    match state:
        case "waiting":
            return waiting_jobs(queries.fleet(), queries.waiting, sku, limit)
        case "in_progress":
            return running_jobs(queries.fleet(), queries.waiting, sku, limit)
        case "unmatched" if sku is None:
            return unmatched_jobs(queries.fleet(), limit)
        case "unmatched":
            raise MalformedRequestError(
                "`sku` must not be given with `state` unmatched: no SKU serves them"
            )
    raise MalformedRequestError("`state` must be waiting, in_progress or unmatched")


async def job_with_past(queries: FleetQueries, job: JobId) -> tuple[Explanation | None, Past]:
    """Return what is known about a job, from memory or the store, and its past. Raises: StoreError."""
    return queries.explain(job) or await queries.ended(job), await queries.past(job)


def chosen_sku(request: web.Request, queries: FleetQueries) -> SkuName | None:
    """Return the SKU that a query names, or None. Raises MalformedRequestError and UnknownNameError."""
    name = request.query.get("sku")
    if name is None:
        return None
    if _NAME.fullmatch(name) is None:
        raise MalformedRequestError("`sku` must be the name of a SKU")
    if not knows_sku(queries.fleet(), SkuName(name)):
        raise UnknownNameError(f"no SKU is called {name}: `autoscaler status --all` lists them")
    return SkuName(name)


def _only(request: web.Request, keys: set[str]) -> None:
    if unknown := sorted(set(request.query) - keys):
        allowed = f"allowed: {', '.join(sorted(keys))}" if keys else "none is allowed"
        raise MalformedRequestError(f"unknown parameter {unknown[0][:40]}; {allowed}")


def _limit(request: web.Request) -> int:
    text = request.query.get("limit", str(_ROWS))
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= MAX_ROWS):
        raise MalformedRequestError(f"`limit` must be a number from 1 to {MAX_ROWS}")
    return int(text)


def chosen_repository(request: web.Request) -> str | None:
    """Return the repository that a query names, or None. Raises MalformedRequestError."""
    repository = request.query.get("repository", "")
    if not repository:
        return None
    if _REPOSITORY.fullmatch(repository) is None:
        raise MalformedRequestError("the repository must have the form OWNER/NAME")
    return repository


def chosen_labels(request: web.Request) -> list[str]:
    """Return the labels in a query, separated by commas. Raises MalformedRequestError."""
    labels = [label.strip() for label in request.query.get("labels", "").split(",")]
    if not all(labels) or len(labels) > _MAX_LABELS:
        raise MalformedRequestError(
            f"give 1 to {_MAX_LABELS} labels, separated by commas, and none of them empty"
        )
    return labels
