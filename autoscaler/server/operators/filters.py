"""What the query of a request asks for: filters of lists, pages, labels. The console and /admin share it."""

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from enum import StrEnum

from autoscaler.controller.operators.fleet_queries import FleetQueries
from autoscaler.controller.retention import USAGE_DAYS
from autoscaler.model.identifiers import ProviderName, SkuName
from autoscaler.model.machines.machine import MachineState
from autoscaler.model.reasons.table import Unmatched, WaitCode
from autoscaler.views.jobs.job import JobView
from autoscaler.views.jobs.lists import JobFilter, running_jobs, unmatched_jobs, waiting_jobs
from autoscaler.views.listed import Listed, Part
from autoscaler.views.machines import MachineFilter, knows_provider, knows_sku
from autoscaler.views.spending import SpendingKey

JOB_FILTERS = ("state", "sku", "repository", "reason", "older_than", "page")
MACHINE_FILTERS = ("state", "sku", "provider", "page")
SPENDING = ("days", "by")

MAX_ROWS = 250
"""Maximum number of jobs or machines in one answer: it takes 10 ms of the event loop."""

MAX_SKIPPED = 10_000
"""Maximum number of rows before those of an answer: skipping them takes 5 ms of the event loop."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
_MAX_LABELS = 32

Query = Mapping[str, str]


class MalformedRequestError(Exception):
    """A part of the request cannot be used. The text names it and says what is allowed."""


class UnknownNameError(Exception):
    """Nothing has the name in the request. The text says where to find names."""


class JobList(StrEnum):
    """The lists of jobs: the values of `state`."""

    WAITING = "waiting"
    IN_PROGRESS = "in_progress"
    UNMATCHED = "unmatched"


_CODES: Mapping[JobList, Collection[str]] = {
    JobList.WAITING: frozenset(WaitCode),
    JobList.UNMATCHED: frozenset(Unmatched),
    JobList.IN_PROGRESS: (),
}


def only(query: Query, keys: Collection[str]) -> None:
    """Raise MalformedRequestError if a query has another parameter than these."""
    if unknown := sorted(set(query) - set(keys)):
        allowed = f"allowed: {', '.join(sorted(keys))}" if keys else "none is allowed"
        raise MalformedRequestError(f"unknown parameter {unknown[0][:40]}; {allowed}")


def chosen_jobs(query: Query, queries: FleetQueries) -> tuple[JobList, JobFilter]:
    """Return which jobs a query asks for. Raises MalformedRequestError and UnknownNameError."""
    state = query.get("state", JobList.WAITING.value)
    if state not in set(JobList):
        raise MalformedRequestError("`state` must be waiting, in_progress or unmatched")
    if state == JobList.UNMATCHED and "sku" in query:
        raise MalformedRequestError(
            "`sku` must not be given with `state` unmatched: no SKU serves them"
        )
    chosen = JobFilter(
        chosen_sku(query, queries),
        chosen_repository(query) or "",
        _reason(query, JobList(state)),
        _number(query, "older_than", 0, 10**7, "seconds"),
    )
    return JobList(state), chosen


def jobs_in_state(
    queries: FleetQueries, state: JobList, chosen: JobFilter, part: Part
) -> Listed[JobView]:
    """Return jobs that wait, run, or match no SKU."""
    match state:
        case JobList.WAITING:
            return waiting_jobs(queries.fleet(), queries.waiting, chosen, part)
        case JobList.IN_PROGRESS:
            return running_jobs(queries.fleet(), queries.waiting, chosen, part)
        case JobList.UNMATCHED:
            return unmatched_jobs(queries.fleet(), chosen, part)


def chosen_machines(query: Query, queries: FleetQueries) -> MachineFilter:
    """Return which machines a query asks for. Raises MalformedRequestError and UnknownNameError."""
    state = query.get("state")
    if state is not None and state not in set(MachineState):
        raise MalformedRequestError(f"`state` must be one of {', '.join(MachineState)}")
    return MachineFilter(
        chosen_sku(query, queries),
        MachineState(state) if state is not None else None,
        _provider(query, queries),
    )


def chosen_spending(query: Query) -> tuple[int, frozenset[SpendingKey]]:
    """Return the number of days and the keys by which a query asks for costs. Raises MalformedRequestError."""
    by = query.get("by", SpendingKey.SKU.value).split(",")
    if not set(by) <= set(SpendingKey):
        raise MalformedRequestError(f"`by` must be some of {','.join(SpendingKey)}")
    return _number(query, "days", 1, USAGE_DAYS, default=30), frozenset(map(SpendingKey, by))


def chosen_part(query: Query, rows: int) -> Part:
    """Return the rows of the page that a query asks for, by default `rows` at most.

    Raises: MalformedRequestError.
    """
    limit = _number(query, "limit", 1, MAX_ROWS, default=rows)
    page = _number(query, "page", 1, last_page(limit), default=1)
    return Part((page - 1) * limit, limit)


def last_page(rows: int) -> int:
    """Return the number of the last page that is answered if each has so many rows."""
    return MAX_SKIPPED // rows + 1


def chosen_sku(query: Query, queries: FleetQueries) -> SkuName | None:
    """Return the SKU that a query names, or None. Raises MalformedRequestError and UnknownNameError."""
    name = query.get("sku")
    if name is None:
        return None
    if _NAME.fullmatch(name) is None:
        raise MalformedRequestError("`sku` must be the name of a SKU")
    if not knows_sku(queries.fleet(), SkuName(name)):
        raise UnknownNameError(f"no SKU is called {name}: `autoscaler status --all` lists them")
    return SkuName(name)


def _provider(query: Query, queries: FleetQueries) -> ProviderName | None:
    name = query.get("provider")
    if name is None:
        return None
    if _NAME.fullmatch(name) is None:
        raise MalformedRequestError("`provider` must be the name of a provider")
    if not knows_provider(queries.fleet(), ProviderName(name)):
        raise UnknownNameError(f"no provider is called {name}: fleet.yaml has their names")
    return ProviderName(name)


def _reason(query: Query, state: JobList) -> str:
    code = query.get("reason")
    if code is None:
        return ""
    if state is JobList.IN_PROGRESS:
        raise MalformedRequestError(
            "`reason` must not be given with `state` in_progress: these jobs do not wait"
        )
    if code not in _CODES[state]:
        meant = get_close_matches(code, sorted(_CODES[state]), n=1)
        where = f"did you mean {meant[0]}?" if meant else "docs/runbooks/reasons.md has them"
        raise MalformedRequestError(f"`reason` must be a code of jobs that are {state}: {where}")
    return code


def _number(query: Query, name: str, least: int, most: int, of: str = "", default: int = 0) -> int:
    text = query.get(name, str(default))
    usable = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    if not usable or not least <= int(text) <= most:
        what = f"a number of {of}" if of else "a number"
        raise MalformedRequestError(f"`{name}` must be {what} from {least} to {most}")
    return int(text)


def chosen_repository(query: Query) -> str | None:
    """Return the repository that a query names, or None. Raises MalformedRequestError."""
    repository = query.get("repository", "")
    if not repository:
        return None
    if _REPOSITORY.fullmatch(repository) is None:
        raise MalformedRequestError("the repository must have the form OWNER/NAME")
    return repository


def chosen_labels(query: Query) -> list[str]:
    """Return the labels in a query, separated by commas. Raises MalformedRequestError."""
    labels = [label.strip() for label in query.get("labels", "").split(",")]
    if not all(labels) or len(labels) > _MAX_LABELS:
        raise MalformedRequestError(
            f"give 1 to {_MAX_LABELS} labels, separated by commas, and none of them empty"
        )
    return labels
