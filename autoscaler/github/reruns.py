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

from autoscaler.controller.ports.github import RetryLaterError
from autoscaler.controller.ports.reruns import RerunAnswer, RerunUnknownError
from autoscaler.github.api import Api, read_as
from autoscaler.github.app_auth import Installation
from autoscaler.github.app_selection import AppSelection
from autoscaler.github.exchange import Answer, Effect, Request
from autoscaler.github.installations import Installations
from autoscaler.github.received import Received
from autoscaler.github.refusals import OUTAGE_DELAY, LimitError, NotShownError
from autoscaler.github.targets import Target, target_of_repository
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


class JobReruns:
    """Requests re-runs with the App that has the most headroom."""

    def __init__(self, api: Api, installations: Installations, selection: AppSelection) -> None:
        self._api = api
        self._installations = installations
        self._apps = selection

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
            return await self._ask(target, "jobs/{id}/rerun", asked[0], asked)
        if await self._failed_jobs(target, run_id) != set(asked):
            return RerunAnswer(asked, None, "other jobs of the run failed too", apart=True)
        # One request re-runs exactly these jobs, at the same time.
        return await self._ask(target, "runs/{id}/rerun-failed-jobs", run_id, asked)

    async def _ask(
        self, target: Target, route: str, number: int, jobs: tuple[JobId, ...]
    ) -> RerunAnswer:
        request = Request(
            "POST",
            f"{target.route}/actions/{route}",
            {**target.variables, "id": number},
            effect=Effect.WRITE,
            expected=frozenset({404, 409, 410, 422}),
        )
        try:
            answer = await self._shown(target, request)
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
            f"{target.route}/actions/runs/{{id}}",
            {**target.variables, "id": run_id},
            expected=frozenset({404}),
        )
        return read_as(_Run, request, await self._shown(target, request))

    async def _failed_jobs(self, target: Target, run_id: int) -> set[JobId]:
        request = Request(
            "GET",
            f"{target.route}/actions/runs/{{id}}/jobs{{?filter,per_page}}",
            {**target.variables, "id": run_id, "filter": "latest", "per_page": 100},
            expected=frozenset({404}),
        )

        async def by(caller: Installation) -> set[JobId]:
            found: set[JobId] = set()
            async with aclosing(self._api.pages(request, caller)) as pages:
                async for answer in pages:
                    _must_be_shown(request, answer)
                    listed = read_as(_JobPage, request, answer).jobs
                    found |= {JobId(one.id) for one in listed if one.conclusion in _RUN_AGAIN}
            return found

        candidates = await self._installations.of_repository(target)
        return await self._apps.run(candidates, target, request, by)

    async def _shown(self, target: Target, request: Request) -> Answer:
        """Return the answer of an App that may see the object. Raises NotShownError if none may."""

        async def shown(caller: Installation) -> Answer:
            answer = await self._api.ask(request, caller)
            _must_be_shown(request, answer)
            return answer

        candidates = await self._installations.of_repository(target)
        return await self._apps.run(candidates, target, request, shown)


def _must_be_shown(request: Request, answer: Answer) -> None:
    if answer.status == 404:
        raise NotShownError(f"{request.endpoint}: {answer.status} {answer.message}")
