"""Implements the port `Reruns`: asks GitHub to re-run jobs.

Reads the run first. GitHub refuses a re-run with 403 until the run is completed. If the run has a
later attempt, its jobs were already re-run. A 404 for the run is an error and not a refusal, because
the App may get its permission back.

Routes: docs.github.com REST "Workflow runs" (Get, Re-run a job, Re-run failed jobs) and "Workflow
jobs". The App needs the permission Actions: write.
"""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Annotated

from pydantic import Field

from autoscaler.controller.ports.github import (
    RerunAnswer,
    RerunUnknownError,
    RetryLaterError,
    github_errors,
)
from autoscaler.github.apps.authentication import Installation
from autoscaler.github.apps.selection import AppSelection
from autoscaler.github.apps.targets import Target, target_of_repository
from autoscaler.github.requests.api import Api, read_as
from autoscaler.github.requests.exchange import Effect, Request
from autoscaler.github.requests.outcomes import OUTAGE_DELAY, LimitError, NotShownError, not_shown
from autoscaler.github.requests.received import Received
from autoscaler.model.identifiers import JobId
from autoscaler.model.machines.interruptions import RerunOutcome

_RUN_AGAIN = frozenset({"failure", "cancelled", "timed_out", "startup_failure"})
"""Conclusions of the jobs that "Re-run failed jobs" re-runs."""

_CREATED = 201
"""The status with which GitHub accepts a re-run; another 2xx is from a proxy."""


class _Run(Received):
    status: Annotated[str, Field(max_length=64)] | None = None
    run_attempt: Annotated[int, Field(ge=1)] = 1


class _Job(Received):
    id: Annotated[int, Field(gt=0)]
    conclusion: Annotated[str, Field(max_length=64)] | None = None


class _JobPage(Received):
    jobs: list[_Job]


@github_errors
class JobReruns:
    """Requests re-runs with the App that has the most headroom."""

    def __init__(self, api: Api, apps: AppSelection) -> None:
        self._api = api
        self._apps = apps

    async def rerun(
        self, repository: str, run_id: int, run_attempt: int, jobs: Sequence[JobId]
    ) -> RerunAnswer:
        """See `Reruns`."""
        target, asked = target_of_repository(repository), tuple(jobs)
        run = await self._run(target, run_id)
        if run.run_attempt > run_attempt:
            reason = f"the run is at attempt {run.run_attempt}"
            return RerunAnswer(asked, RerunOutcome.SUPERSEDED, reason)
        if run.status != "completed" or run.run_attempt < run_attempt:
            reason = f"the run is {run.status}, at attempt {run.run_attempt}"
            return RerunAnswer(asked, None, reason)  # an earlier attempt is from a stale cache
        if len(asked) == 1:
            return await self._ask(target, "jobs/{job_id}/rerun", {"job_id": asked[0]}, asked)
        if await self._failed_jobs(target, run_id) != set(asked):
            return RerunAnswer(asked, None, "other jobs of the run failed too", apart=True)
        # One request re-runs exactly these jobs, at the same time.
        return await self._ask(target, "runs/{run_id}/rerun-failed-jobs", {"run_id": run_id}, asked)

    async def _ask(
        self, target: Target, route: str, number: dict[str, int], jobs: tuple[JobId, ...]
    ) -> RerunAnswer:
        request = Request(
            "POST",
            f"{target.route}/actions/{route}",
            {**target.variables, **number},
            effect=Effect.WRITE,
            expected=frozenset({404, 409, 410, 422}),
        )
        try:
            answer = await self._apps.shown(target, request)
        except NotShownError as error:
            return RerunAnswer(jobs, RerunOutcome.REFUSED, str(error))
        except LimitError:
            raise
        except RetryLaterError as error:
            raise RerunUnknownError(str(error), error.retry_after, jobs) from error
        if answer.status == _CREATED:
            return RerunAnswer(jobs, RerunOutcome.ACCEPTED)
        if answer.ok:
            text = f"{request.endpoint}: {answer.status}, a status that GitHub does not send here"
            raise RerunUnknownError(text, OUTAGE_DELAY, jobs)
        reason = f"{answer.status} {answer.message}".rstrip()
        return RerunAnswer(jobs, RerunOutcome.REFUSED, reason)

    async def _run(self, target: Target, run_id: int) -> _Run:
        request = Request(
            "GET",
            f"{target.route}/actions/runs/{{run_id}}",
            {**target.variables, "run_id": run_id},
            expected=frozenset({404}),
        )
        return read_as(_Run, request, await self._apps.shown(target, request))

    async def _failed_jobs(self, target: Target, run_id: int) -> set[JobId]:
        request = Request(
            "GET",
            f"{target.route}/actions/runs/{{run_id}}/jobs{{?filter,per_page}}",
            {**target.variables, "run_id": run_id, "filter": "latest", "per_page": 100},
            expected=frozenset({404}),
        )

        async def by(caller: Installation) -> set[JobId]:
            found: set[JobId] = set()
            async with aclosing(self._api.pages(request, caller)) as pages:
                async for answer in pages:
                    if answer.status == 404:
                        raise not_shown(request, answer)
                    listed = read_as(_JobPage, request, answer).jobs
                    found |= {JobId(one.id) for one in listed if one.conclusion in _RUN_AGAIN}
            return found

        return await self._apps.at_repository(target, request, by)
