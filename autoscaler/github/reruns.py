"""Has GitHub run jobs again. Implements the port `Reruns`.

It looks at the run first: GitHub refuses (403) while a run is not complete, and a run whose last
attempt is not the one that is asked about was tried again already. A run that is not shown may be
there still, for an App that gets its permission back: that is an error, and no refusal. It never
decides whether a job ought to be run again, nor when to ask.

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
from autoscaler.github.exchange import Answer, Effect, Request
from autoscaler.github.installations import Installations
from autoscaler.github.received import Received
from autoscaler.github.refusals import OUTAGE_DELAY, LimitError, NotShownError
from autoscaler.github.sharing import Sharing
from autoscaler.github.targets import Target, target_of_repository
from autoscaler.model.identifiers import JobId
from autoscaler.model.interruptions import RerunOutcome

_RUN_AGAIN = frozenset({"failure", "cancelled", "timed_out", "startup_failure"})
"""Conclusions of jobs that "Re-run failed jobs" takes along."""

_CREATED = 201
"""GitHub's only word for yes here; another 2xx is a proxy's."""


class _Run(Received):
    status: Annotated[str, Field(max_length=64)] | None = None
    run_attempt: Annotated[int, Field(ge=1)] = 1


class _Job(Received):
    id: Annotated[int, Field(gt=0)]
    conclusion: Annotated[str, Field(max_length=64)] | None = None


class _JobPage(Received):
    jobs: list[_Job]


class RunAgain:
    """Asks by whichever App has most room."""

    def __init__(self, api: Api, installations: Installations, sharing: Sharing) -> None:
        self._api = api
        self._installations = installations
        self._sharing = sharing

    async def rerun(
        self, repository: str, run_id: int, run_attempt: int, jobs: Sequence[JobId]
    ) -> RerunAnswer:
        """See `Reruns`."""
        target, asked = target_of_repository(repository), tuple(jobs)
        run = await self._run(target, run_id)
        if run.run_attempt > run_attempt:
            told = f"the run is at attempt {run.run_attempt}"
            return RerunAnswer(asked, RerunOutcome.SUPERSEDED, told)
        if run.status != "completed" or run.run_attempt < run_attempt:
            told = f"the run is {run.status}, at attempt {run.run_attempt}"
            return RerunAnswer(asked, None, told)  # an earlier attempt: an answer out of a cache
        if len(asked) == 1:
            return await self._ask(target, "jobs/{id}/rerun", asked[0], asked)
        if await self._failed_jobs(target, run_id) != set(asked):
            return RerunAnswer(asked, None, "other jobs of the run failed too", apart=True)
        # All that failed are ours: one request, and they run side by side.
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
            told = f"{request.endpoint}: {answer.status}, which is not GitHub's own answer"
            raise RerunUnknownError(told, OUTAGE_DELAY, jobs)
        told = f"{answer.status} {answer.message}".rstrip()
        return RerunAnswer(jobs, RerunOutcome.REFUSED, told)

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
        return await self._sharing.carry(candidates, target, request, by)

    async def _shown(self, target: Target, request: Request) -> Answer:
        """An App's answer, of those that are shown what it is about. Raises NotShownError."""

        async def shown(caller: Installation) -> Answer:
            answer = await self._api.ask(request, caller)
            _must_be_shown(request, answer)
            return answer

        candidates = await self._installations.of_repository(target)
        return await self._sharing.carry(candidates, target, request, shown)


def _must_be_shown(request: Request, answer: Answer) -> None:
    if answer.status == 404:
        raise NotShownError(f"{request.endpoint}: {answer.status} {answer.message}")
