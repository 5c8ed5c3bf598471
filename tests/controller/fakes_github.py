"""GitHub in memory: registrations by name, scripted answers, and a job for every idle runner."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from autoscaler.controller.ports.github import (
    GitHubError,
    NewRegistration,
    OperatorError,
    Redelivered,
    RegisteredRunner,
    RunnerBusyError,
    RunnerExistsError,
)
from autoscaler.model.access import RunnerGroup
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, JobId, RunnerName, Seconds
from autoscaler.model.run_origins import RunOrigin
from tests.controller.fakes import CrashPoint

T = TypeVar("T")

NARROW = RunnerGroup(
    "selected", allows_public_repositories=False, restricted_to_workflows=False, repositories=()
)


@dataclass
class Registration:
    """One runner as GitHub knows it."""

    id: int
    scope: str
    name: RunnerName
    labels: tuple[str, ...]
    online: bool = False
    busy: bool = False


@dataclass(frozen=True)
class AnswerLost:
    """The request is carried out, and this error is raised instead of an answer."""

    error: GitHubError


class _Redeliver(Protocol):
    def __call__(self, since: Instant) -> Awaitable[int]: ...


@dataclass
class FakeGitHub:
    """`scripts` are consumed from the left, by method; an empty one is a good day.

    `forks` are the runs that come from one, or of which GitHub does not say. `hides_runners`: lists
    of runners are empty, as a wrong answer of GitHub's is. `clock_runs`: `now` passes between a request
    and its arrival here, so only a stopped clock dates a request exactly.
    """

    latency: Seconds = 0.2
    crash_point: CrashPoint = field(default_factory=CrashPoint)
    registrations: dict[RunnerName, Registration] = field(default_factory=dict)
    registered: list[RunnerName] = field(default_factory=list)
    deleted: list[RunnerName] = field(default_factory=list)
    secrets: dict[RunnerName, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    jobs: dict[JobId, JobObserved | None] = field(default_factory=dict)
    since: list[Instant] = field(default_factory=list)
    on_register: Callable[[RunnerName], None] = lambda _: None
    groups: dict[str, RunnerGroup] = field(default_factory=lambda: {"Default": NARROW})
    hides_runners: bool = False
    forks: dict[int, bool | None] = field(default_factory=dict)
    on_delete: Callable[[int], None] = lambda _: None
    redeliver: _Redeliver | None = None
    now: Callable[[], Instant] = lambda: 0.0
    clock_runs: bool = False
    scripts: dict[str, deque[GitHubError | AnswerLost | None]] = field(
        default_factory=lambda: defaultdict(deque)
    )

    def script(self, method: str, *steps: GitHubError | AnswerLost | None) -> None:
        """Set the outcomes of the next calls of a method. None means success."""
        self.scripts[method].extend(steps)

    async def register(
        self, scope: str, runner_group: str, name: RunnerName, labels: tuple[str, ...]
    ) -> NewRegistration:
        def make() -> NewRegistration:
            if name in self.registrations:
                raise RunnerExistsError(f"409 {name}")
            self.registered.append(name)
            made = Registration(len(self.registered), scope, name, labels)
            self.registrations[name] = made
            self.secrets[name] = f"SECRET-JIT-{made.id}"
            return NewRegistration(made.id, self.secrets[name])

        self.on_register(name)
        return await self._answer("register", make)

    async def find_runner(self, scope: str, name: RunnerName) -> RegisteredRunner | None:
        def find() -> RegisteredRunner | None:
            found = self.registrations.get(name)
            if found is None or found.scope != scope or self.hides_runners:
                return None
            return RegisteredRunner(found.id, name, found.online, found.busy)

        return await self._answer("find_runner", find)

    async def read_runner(self, scope: str, github_id: int) -> RegisteredRunner | None:
        def read() -> RegisteredRunner | None:
            found = next((r for r in self.registrations.values() if r.id == github_id), None)
            if found is None or found.scope != scope:
                return None
            return RegisteredRunner(found.id, found.name, found.online, found.busy)

        return await self._answer("read_runner", read)

    async def delete_runner(self, scope: str, github_id: int) -> bool:
        def delete() -> bool:
            for found in tuple(self.registrations.values()):
                if found.id == github_id and found.scope == scope:
                    if found.busy:
                        raise RunnerBusyError("422 is running a job")
                    del self.registrations[found.name]
                    self.deleted.append(found.name)
                    return True
            return False

        self.on_delete(github_id)
        return await self._answer("delete_runner", delete)

    async def read_job(self, repository: str, job: JobId, now: Instant) -> JobObserved | None:
        asked_now = now <= self.now() if self.clock_runs else now == self.now()
        assert asked_now, "the time of the request dates the answer"

        def read() -> JobObserved | None:
            found = self.jobs.get(job)
            return found if found is not None and found.repository == repository else None

        return await self._answer("read_job", read)

    async def run_origin(self, repository: str, run_id: int) -> RunOrigin | None:
        def read() -> RunOrigin | None:
            fork = self.forks.get(run_id, False)
            return None if fork is None else RunOrigin(fork, False, None if fork else "main")

        return await self._answer("run_origin", read)

    async def runner_group(self, scope: str, name: str) -> RunnerGroup:
        def find() -> RunnerGroup:
            if name not in self.groups:
                raise OperatorError(f"there is no runner group {name}")
            return self.groups[name]

        return await self._answer("runner_group", find)

    async def redeliver_failed(self, since: Instant) -> Redelivered:
        self.since.append(since)
        count = await self._answer("redeliver_failed", lambda: 0)
        asked = count if self.redeliver is None else await self.redeliver(since)
        return Redelivered(asked, since if asked else self.now())

    async def close(self) -> None:
        """Do nothing: this fake holds no connection."""

    async def _answer(self, method: str, carry_out: Callable[[], T]) -> T:
        self.asked.append(method)
        await self.crash_point.count_call()
        await asyncio.sleep(self.latency / 2)
        step = self.scripts[method].popleft() if self.scripts[method] else None
        if isinstance(step, GitHubError):
            raise step
        answer = carry_out()
        await asyncio.sleep(self.latency / 2)
        await self.crash_point.count_call()
        if isinstance(step, AnswerLost):
            raise step.error
        return answer
