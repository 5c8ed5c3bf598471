"""Implements the port `GitHub` with the REST API: registrations, jobs, runs and deliveries.

Sends a request for a registration only once, because a repeat could register two runners.
"""

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated

import structlog
from pydantic import Field

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import (
    GitHubError,
    NewRegistration,
    OperatorError,
    Redelivered,
    RegisteredRunner,
    RunnerBusyError,
    RunnerExistsError,
    github_errors,
)
from autoscaler.controller.ports.replicas import Leads, leads_forever
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.github.apps.authentication import App, Installation
from autoscaler.github.apps.selection import AppSelection
from autoscaler.github.apps.targets import Target, target_of_repository, target_of_scope
from autoscaler.github.deliveries import NoDeliveries, Redelivery
from autoscaler.github.jobs import JOB_STATES, Source, observe, read_job
from autoscaler.github.lists.formats import ListedRunner, RunnerPage, WorkflowRun
from autoscaler.github.lists.page_cache import PageCache
from autoscaler.github.lists.reader import Lists
from autoscaler.github.requests.api import Api, read_as
from autoscaler.github.requests.budget import Budget
from autoscaler.github.requests.exchange import Answer, Effect, Importance, Request
from autoscaler.github.requests.outcomes import (
    NotAllowedError,
    NotShownError,
    not_shown,
    unusable_answer,
)
from autoscaler.github.requests.received import Received
from autoscaler.github.requests.request_queue import RequestQueue
from autoscaler.github.requests.transport import Transport
from autoscaler.github.reruns import JobReruns
from autoscaler.github.runner_groups import RunnerGroups
from autoscaler.github.settings import GitHubSettings
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, JobId, RunnerName
from autoscaler.model.jobs.job import RunOrigin
from autoscaler.model.jobs.runner_group_excess import RunnerGroup

_log = structlog.get_logger(__name__)


class _NewRunner(Received):
    id: Annotated[int, Field(gt=0)]


class _JitAnswer(Received):
    runner: _NewRunner
    encoded_jit_config: Annotated[str, Field(min_length=1, repr=False)]


@github_errors
class GitHubClient:
    """A client for one GitHub instance, with one or several Apps.

    `lists` reads lists within the same limits, and `reruns` re-runs jobs. `token_clock` is the clock
    for the lifetime of JWTs and tokens, if it differs from `clock`: the lab's time runs faster, and
    its tokens expire in real time. `wall` is the clock that signs JWTs, if it is not that one: GitHub
    compares it with its own. Requests that change something are sent while the process `leads`.
    Raises ValueError if a private key cannot be used.
    """

    def __init__(
        self,
        settings: GitHubSettings,
        clock: Clock,
        telemetry: Telemetry,
        token_clock: Clock | None = None,
        wall: Callable[[], Instant] | None = None,
        leads: Leads = leads_forever,
    ) -> None:
        tokens = token_clock or clock
        self._clock = clock
        self._transport = Transport(settings, clock, telemetry, wall or tokens.now, leads)
        budget = Budget(settings.points_per_minute)
        queue = RequestQueue(budget, clock, settings.concurrency)
        self._api = Api(self._transport, queue, clock, telemetry)
        apps = [App(key, wall or tokens.now) for key in settings.apps]
        self._apps = AppSelection(self._api, apps, budget, clock, tokens)
        self._groups = RunnerGroups(self._api, clock)
        self.lists = Lists(
            PageCache(self._api, self._transport.url_of, clock),
            self._apps,
            budget,
            clock,
            limited=settings.points_per_minute is not None,
        )
        self.reruns = JobReruns(self._api, self._apps)
        redelivery = Redelivery if settings.webhooks else NoDeliveries
        self._redeliveries = [redelivery(app, self._api, clock) for app in apps]

    async def register(
        self, scope: str, runner_group: str, name: RunnerName, labels: tuple[str, ...]
    ) -> NewRegistration:
        """Register a JIT runner, without retries. Raises the port's errors."""
        target = target_of_scope(scope)
        request = Request(
            "POST",
            f"{target.route}/actions/runners/generate-jitconfig",
            target.variables,
            effect=Effect.REGISTER,
            importance=Importance.REGISTER,
            expected=frozenset({404, 409, 422}),
        )

        async def by(caller: Installation) -> NewRegistration:
            group = await self._groups.id_of(target, runner_group, caller)
            body = {"name": name, "runner_group_id": group, "labels": list(labels)}
            filled = replace(request, body=body)
            answer = await self._api.ask(filled, caller)
            if not answer.ok:
                raise self._not_registered(target, filled, answer)
            registered = read_as(_JitAnswer, filled, answer)
            return NewRegistration(registered.runner.id, registered.encoded_jit_config)

        return await self._apps.at_scope(target, request, by)

    async def find_runner(self, scope: str, name: RunnerName) -> RegisteredRunner | None:
        """Return the registration with this exact name, or None. Raises the port's errors."""
        target = target_of_scope(scope)
        request = Request(
            "GET",
            f"{target.route}/actions/runners{{?name,per_page}}",
            {**target.variables, "name": name, "per_page": 100},
        )
        return await self._apps.at_scope(
            target, request, lambda caller: self._find(request, name, caller)
        )

    async def read_runner(self, scope: str, github_id: int) -> RegisteredRunner | None:
        """Return the registration with this id, or None for a 404. Raises the port's errors.

        GitHub also answers 404 to an App that may not see the runners. A 404 therefore counts only
        if the same App can list the scope's runners.
        Source: docs.github.com, REST "Self-hosted runners", "Get a self-hosted runner".
        """
        target = target_of_scope(scope)
        request = Request(
            "GET",
            f"{target.route}/actions/runners/{{runner_id}}",
            {**target.variables, "runner_id": github_id},
            expected=frozenset({404}),
        )
        return await self._apps.at_scope(
            target, request, lambda caller: self._read(request, target, caller)
        )

    async def delete_runner(self, scope: str, github_id: int) -> bool:
        """Delete a registration: True for 204, False for 404. Raises the port's errors."""
        target = target_of_scope(scope)
        request = Request(
            "DELETE",
            f"{target.route}/actions/runners/{{runner_id}}",
            {**target.variables, "runner_id": github_id},
            effect=Effect.WRITE,
            importance=Importance.REMOVE,
            expected=frozenset({404, 422}),
        )
        answer = await self._apps.at_scope(
            target, request, lambda caller: self._api.ask(request, caller)
        )
        if answer.status == 422:
            raise RunnerBusyError(f"{request.endpoint}: 422 {answer.message}")
        if answer.status not in (204, 404):
            raise unusable_answer(
                request, f"{answer.status}, a status that GitHub does not send here"
            )
        return answer.ok

    async def read_job(self, repository: str, job: JobId, now: Instant) -> JobObserved | None:
        """Return a job as GitHub shows it, with `read` set; None for 404. Raises the port's errors."""
        found = await self._about(repository, "/actions/jobs/{job_id}", job_id=job)
        if found is None:
            return None
        request, answer = found
        try:
            read = read_job(answer.data)
        except ValueError as error:
            raise unusable_answer(request, f"a job of an unknown shape ({error})") from None
        state = JOB_STATES.get(read.status or "")
        if state is None or read.id != job:
            raise unusable_answer(
                request, f"an unknown status {read.status!r}, or another job's data"
            )
        return observe(read, state, Source(repository, now, read=True))

    async def run_origin(self, repository: str, run_id: int) -> RunOrigin | None:
        """Return where a run comes from; None for 404. Raises the port's errors."""
        found = await self._about(repository, "/actions/runs/{run_id}", run_id=run_id)
        if found is None:
            return None
        request, answer = found
        read = read_as(WorkflowRun, request, answer)
        if read.id != run_id:
            raise unusable_answer(request, "another run's data")
        return read.origin

    async def runner_group(self, scope: str, name: str) -> RunnerGroup:
        """Return the current state of an organization's runner group. Raises the port's errors."""
        target = target_of_scope(scope)
        request = Request("GET", "/orgs/{org}/actions/runner-groups", target.variables)
        return await self._apps.at_scope(
            target, request, lambda caller: self._groups.group(target, name, caller)
        )

    async def redeliver_failed(self, since: Instant) -> Redelivered:
        """Ask GitHub to redeliver every App's failed deliveries, at most 50 for each App.

        Without webhooks, only ask whether GitHub still knows the Apps.

        If some Apps fail, `arrived_until` is `since`: the next call reads their deliveries again.
        Raises the port's errors if all Apps fail.
        """
        done: list[Redelivered] = []
        first: GitHubError | None = None
        for redelivery in self._redeliveries:
            try:
                done.append(await redelivery.run(since))
            except GitHubError as error:  # the other Apps go on
                _log.warning("redelivery_failed", app=redelivery.app_id, error=str(error))
                first = first or error
        if first is not None and not done:
            raise first
        ends = [one.arrived_until for one in done] + ([since] if first is not None else [])
        return Redelivered(sum(one.asked for one in done), min(ends))

    async def close(self) -> None:
        """Cancel background requests and close all connections. Idempotent."""
        await self._groups.close()
        await self._apps.close()
        await self._transport.close()

    async def _find(
        self, request: Request, name: RunnerName, caller: Installation
    ) -> RegisteredRunner | None:
        # GitHub's filter may match other names too, and an old Enterprise Server has none.
        async with aclosing(self._api.pages(request, caller)) as pages:
            async for answer in pages:
                for runner in read_as(RunnerPage, request, answer).runners:
                    if runner.name == name:
                        return runner.registered()
        return None

    async def _read(
        self, request: Request, target: Target, caller: Installation
    ) -> RegisteredRunner | None:
        answer = await self._api.ask(request, caller)
        if answer.ok:
            runner = read_as(ListedRunner, request, answer).registered()
            if runner.github_id != request.variables["runner_id"]:
                raise unusable_answer(request, "another runner's data")
            return runner
        route = f"{target.route}/actions/runners{{?per_page}}"
        await self._api.ask(Request("GET", route, {**target.variables, "per_page": 1}), caller)
        return None

    async def _about(
        self, repository: str, route: str, **number: int
    ) -> tuple[Request, Answer] | None:
        """Return the request and the answer about a repository's object, or None if every App gets a 404."""
        target = target_of_repository(repository)
        request = Request(
            "GET",
            f"{target.route}{route}",
            {**target.variables, **number},
            expected=frozenset({404}),
        )
        try:
            return request, await self._apps.shown(target, request)
        except NotShownError:
            return None

    def _not_registered(self, target: Target, request: Request, answer: Answer) -> GitHubError:
        text = f"{request.endpoint}: {answer.status} {answer.message}"
        if answer.status == 409 or "already exists" in answer.message.lower():
            return RunnerExistsError(text)
        # The group may have been deleted and created again with another id.
        self._groups.invalidate(target)
        if answer.status == 404:
            return NotAllowedError(str(not_shown(request, answer)))
        return OperatorError(text)
