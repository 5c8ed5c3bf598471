"""The controller's GitHub: registrations, jobs and deliveries, over the REST API.

Implements the port `GitHub`. Decides which request answers which question and what its answers
mean; never when to ask, and never to ask for a registration twice.
"""

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
)
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.github.api import Api, read_as
from autoscaler.github.app_auth import App, Installation
from autoscaler.github.budget import Budget
from autoscaler.github.deliveries import Redelivery
from autoscaler.github.exchange import Answer, Effect, Importance, Request
from autoscaler.github.gate import Gate
from autoscaler.github.installations import Installations
from autoscaler.github.jobs import JOB_STATES, Sighting, WorkflowJob, observe
from autoscaler.github.known_pages import KnownPages
from autoscaler.github.list_pages import ListedRunner, RunnerPage
from autoscaler.github.lists import Lists
from autoscaler.github.received import Received
from autoscaler.github.refusals import NotAllowedError, NotShownError, unanswered
from autoscaler.github.reruns import RunAgain
from autoscaler.github.runner_groups import RunnerGroups
from autoscaler.github.runs import WorkflowRun
from autoscaler.github.settings import GitHubSettings
from autoscaler.github.sharing import Sharing
from autoscaler.github.targets import Target, target_of_repository, target_of_scope
from autoscaler.github.transport import Transport
from autoscaler.model.access import RunnerGroup
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, JobId, RunnerName

_log = structlog.get_logger(__name__)


class _NewRunner(Received):
    id: Annotated[int, Field(gt=0)]


class _JitAnswer(Received):
    runner: _NewRunner
    encoded_jit_config: Annotated[str, Field(min_length=1, repr=False)]


class GitHubClient:
    """One GitHub instance, seen by our Apps.

    `lists` reads lists within the same limits, `reruns` has jobs run again. `token_clock` is for
    the life of JWTs and tokens, where GitHub lives in another time than `clock` (a lab that runs
    faster, whose tokens do not). Raises ValueError on a private key that cannot be used.
    """

    def __init__(
        self,
        settings: GitHubSettings,
        clock: Clock,
        telemetry: Telemetry,
        token_clock: Clock | None = None,
    ) -> None:
        tokens = token_clock or clock
        self._clock = clock
        self._transport = Transport(settings, clock, telemetry)
        budget = Budget(settings.points_per_minute)
        gate = Gate(budget, clock, settings.concurrency)
        self._api = Api(self._transport, gate, clock, telemetry)
        apps = [App(key, tokens) for key in settings.apps]
        self._installations = Installations(apps, self._api, tokens)
        self._sharing = Sharing(self._api, budget, clock)
        self._groups = RunnerGroups(self._api, clock)
        self.lists = Lists(
            KnownPages(self._api, self._transport.url_of, clock),
            self._installations,
            self._sharing,
            budget,
            clock,
            limited=settings.points_per_minute is not None,
        )
        self.reruns = RunAgain(self._api, self._installations, self._sharing)
        self._redeliveries = [Redelivery(app, self._api, clock) for app in apps]

    async def register(
        self, scope: str, runner_group: str, name: RunnerName, labels: tuple[str, ...]
    ) -> NewRegistration:
        """Register a JIT runner, once. Raises as the port says."""
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

        candidates = await self._installations.of_scope(target)
        return await self._sharing.carry(candidates, target, request, by)

    async def find_runner(self, scope: str, name: RunnerName) -> RegisteredRunner | None:
        """Look a registration up by its exact name. Raises as the port says."""
        target = target_of_scope(scope)
        request = Request(
            "GET",
            f"{target.route}/actions/runners{{?name,per_page}}",
            {**target.variables, "name": name, "per_page": 100},
        )
        candidates = await self._installations.of_scope(target)
        return await self._sharing.carry(
            candidates, target, request, lambda caller: self._find(request, name, caller)
        )

    async def read_runner(self, scope: str, github_id: int) -> RegisteredRunner | None:
        """Return the registration with this id, or None for a 404. Raises as the port says.

        GitHub also answers 404 where an App may not see the runners. So the App that got the 404
        must be able to list the scope's runners, or the 404 counts for nothing.
        Source: docs.github.com, REST "Self-hosted runners", "Get a self-hosted runner".
        """
        target = target_of_scope(scope)
        request = Request(
            "GET",
            f"{target.route}/actions/runners/{{runner_id}}",
            {**target.variables, "runner_id": github_id},
            expected=frozenset({404}),
        )
        candidates = await self._installations.of_scope(target)
        return await self._sharing.carry(
            candidates, target, request, lambda caller: self._read(request, target, caller)
        )

    async def delete_runner(self, scope: str, github_id: int) -> bool:
        """Delete a registration: True for 204, False for 404. Raises as the port says."""
        target = target_of_scope(scope)
        request = Request(
            "DELETE",
            f"{target.route}/actions/runners/{{runner_id}}",
            {**target.variables, "runner_id": github_id},
            effect=Effect.WRITE,
            importance=Importance.REMOVE,
            expected=frozenset({404, 422}),
        )
        candidates = await self._installations.of_scope(target)
        answer = await self._sharing.carry(
            candidates, target, request, lambda caller: self._api.ask(request, caller)
        )
        if answer.status == 422:
            raise RunnerBusyError(f"{request.endpoint}: 422 {answer.message}")
        if answer.status not in (204, 404):
            raise unanswered(request, f"{answer.status}, which is not GitHub's own answer")
        return answer.ok

    async def read_job(self, repository: str, job: JobId, now: Instant) -> JobObserved | None:
        """GitHub's own answer about a job, with `read` set; None for 404. Raises as the port says."""
        target = target_of_repository(repository)
        request = Request(
            "GET",
            f"{target.route}/actions/jobs/{{job_id}}",
            {**target.variables, "job_id": job},
            expected=frozenset({404}),
        )
        answer = await self._shown(target, request)
        if answer is None:
            return None
        read = read_as(WorkflowJob, request, answer)
        state = JOB_STATES.get(read.status or "")
        if state is None or read.id != job:
            raise unanswered(request, f"an unknown status {read.status!r}, or another job")
        try:
            return observe(read, state, Sighting(repository, now, read=True))
        except (ValueError, OverflowError):
            raise unanswered(request, "a time that is none") from None

    async def run_from_fork(self, repository: str, run_id: int) -> bool | None:
        """Return whether a run comes from a fork, None for 404. Raises as the port says."""
        target = target_of_repository(repository)
        request = Request(
            "GET",
            f"{target.route}/actions/runs/{{run_id}}",
            {**target.variables, "run_id": run_id},
            expected=frozenset({404}),
        )
        answer = await self._shown(target, request)
        if answer is None:
            return None
        read = read_as(WorkflowRun, request, answer)
        if read.id != run_id:
            raise unanswered(request, "another run than the one that was asked for")
        return read.from_fork

    async def runner_group(self, scope: str, name: str) -> RunnerGroup:
        """Return an organization's runner group as it is now. Raises as the port says."""
        target = target_of_scope(scope)
        request = Request("GET", "/orgs/{org}/actions/runner-groups", target.variables)
        candidates = await self._installations.of_scope(target)
        return await self._sharing.carry(
            candidates, target, request, lambda caller: self._groups.group(target, name, caller)
        )

    async def redeliver_failed(self, since: Instant) -> Redelivered:
        """Have every App's failed deliveries repeated. Raises as the port says when all Apps fail.

        Where only some fail, `arrived_until` is `since`: their deliveries are looked at again.
        At most 50 an App and call; what is left over is remembered for the next call.
        """
        done: list[Redelivered] = []
        first: GitHubError | None = None
        for redelivery in self._redeliveries:
            # One App's trouble is not the others'.
            try:
                done.append(await redelivery.run(since))
            except GitHubError as error:
                _log.warning("redelivery_failed", app=redelivery.app_id, error=str(error))
                first = first or error
        if first is not None and not done:
            raise first
        ends = [one.arrived_until for one in done] + ([since] if first is not None else [])
        return Redelivered(sum(one.asked for one in done), min(ends))

    async def close(self) -> None:
        """Release connections. Idempotent."""
        await self._groups.close()
        await self._sharing.close()
        await self._installations.close()
        await self._transport.close()

    async def _find(
        self, request: Request, name: RunnerName, caller: Installation
    ) -> RegisteredRunner | None:
        # The filter is GitHub's and may be wider than we mean, or missing on an old GHES.
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
                raise unanswered(request, "another runner than the one that was asked for")
            return runner
        route = f"{target.route}/actions/runners{{?per_page}}"
        await self._api.ask(Request("GET", route, {**target.variables, "per_page": 1}), caller)
        return None

    async def _shown(self, target: Target, request: Request) -> Answer | None:
        """Ask for something in a repository; None if it is shown to none of our Apps."""
        candidates = await self._installations.of_repository(target)
        try:
            return await self._sharing.carry(
                candidates, target, request, lambda caller: self._shown_to(request, caller)
            )
        except NotShownError:
            return None

    async def _shown_to(self, request: Request, caller: Installation) -> Answer:
        answer = await self._api.ask(request, caller)
        if not answer.ok:
            # Not there, or not among the repositories that this App may see.
            raise NotShownError(f"{request.endpoint}: {answer.status} {answer.message}")
        return answer

    def _not_registered(self, target: Target, request: Request, answer: Answer) -> GitHubError:
        text = f"{request.endpoint}: {answer.status} {answer.message}"
        if answer.status == 409 or "already exists" in answer.message.lower():
            return RunnerExistsError(text)
        # The group may have been made anew under its name.
        self._groups.forget(target)
        return NotAllowedError(text) if answer.status == 404 else OperatorError(text)
