"""The registered runners: their scopes and names, and whether they are online and idle.

Names are unique within an organization or repository. A runner is idle, and can be matched to a job, while it
has an open poll and no job.
"""

import asyncio
import math
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from autoscaler.controller.ports.clock import Clock
from autoscaler.model.jobs.labels import label_set
from lab.github.matching import Matching
from lab.github.records import (
    Job,
    Organization,
    Repository,
    Runner,
    RunnerClass,
    RunnerGroup,
)
from lab.github.settings import Patience
from lab.github.timers import Timers


class NameTakenError(Exception):
    """409: a runner with this name is registered already."""


class RunnerGoneError(Exception):
    """404: this registration does not exist any more, or its one job has ended."""


@dataclass(frozen=True, slots=True)
class RunnerScope:
    """Where a runner is registered: an organization, or one of its repositories."""

    organization: Organization
    repository: Repository | None

    @property
    def key(self) -> str:
        """`org` or `org/repo`, in lower case."""
        if self.repository is not None:
            return self.repository.full_name.lower()
        return self.organization.login.lower()


@dataclass(frozen=True, slots=True)
class RegisteredRunnerView:
    """A registration that exists. `job` is the ID of the runner's job, or None.

    `installation` is the ID of the installation that registered it.
    """

    id: int
    name: str
    scope: str
    group: str
    group_id: int
    labels: tuple[str, ...]
    online: bool
    job: int | None
    installation: int


class Runners:
    """All registrations. Removes those that are offline or idle for too long."""

    def __init__(
        self, clock: Clock, timers: Timers, matching: Matching, patience: Patience
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._matching = matching
        self._patience = patience
        self.by_id: dict[int, Runner] = {}
        self._by_name: dict[tuple[str, str], Runner] = {}
        self._of_scope: dict[str, dict[int, Runner]] = {}
        self.registered = 0
        self.ids_after = 0
        self.names: Counter[str] = Counter()

    def add(
        self,
        scope: RunnerScope,
        group: RunnerGroup,
        name: str,
        labels: Sequence[str],
        installation: int,
    ) -> Runner:
        """Register a runner, offline until it connects. Raises NameTakenError."""
        key = (scope.key, name.casefold())
        if key in self._by_name:
            raise NameTakenError(name)
        self.registered += 1
        self.names[name] += 1
        now = self._clock.now()
        runner = Runner(
            id=self.ids_after + self.registered,
            name=name,
            scope=scope.key,
            group=group,
            labels=tuple(labels),
            kind=RunnerClass(
                scope.organization.login.lower(),
                scope.repository.name.lower() if scope.repository is not None else None,
                group.name.lower(),
                group.open_to,
                label_set(labels),
                group.workflows,
            ),
            token=secrets.token_hex(20),
            installation=installation,
            seen_at=now,
        )
        self.by_id[runner.id] = self._by_name[key] = runner
        self._of_scope.setdefault(scope.key, {})[runner.id] = runner
        self._timers.at(now + self._patience.removal, partial(self._remove_if_away, runner))
        return runner

    def views(self) -> list[RegisteredRunnerView]:
        """Return the registrations that exist now, oldest first."""
        return [
            RegisteredRunnerView(
                id=runner.id,
                name=runner.name,
                scope=runner.scope,
                group=runner.group.name,
                group_id=runner.group.id,
                labels=runner.labels,
                online=self.online(runner),
                job=runner.job.id if runner.job is not None else None,
                installation=runner.installation,
            )
            for runner in self.by_id.values()
        ]

    def connect(self, runner: Runner) -> None:
        """Mark a runner as online: its listener has started. Raises RunnerGoneError."""
        self.seen(runner)
        runner.connected = True
        if self._patience.idle < math.inf:
            until = self._clock.now() + self._patience.idle
            self._timers.at(until, partial(self._remove_if_idle, runner))

    def remove(self, runner: Runner) -> None:
        """Remove a registration and answer its poll. Does nothing if it does not exist."""
        if self.by_id.pop(runner.id, None) is None:
            return
        runner.gone = True
        self.close_poll(runner, None)
        del self._by_name[runner.scope, runner.name.casefold()]
        del self._of_scope[runner.scope][runner.id]

    def of_scope(self, scope: RunnerScope) -> list[Runner]:
        """Return the runners of an organization or a repository itself, in the order of registration."""
        return list(self._of_scope.get(scope.key, {}).values())

    def named(self, scope: RunnerScope, name: str) -> Runner | None:
        """Return the runner with exactly this name, or None."""
        runner = self._by_name.get((scope.key, name.casefold()))
        return runner if runner is not None and runner.name == name else None

    def taken(self, scope: RunnerScope, name: str) -> bool:
        """Return True if a registration has this name there, ignoring case."""
        return (scope.key, name.casefold()) in self._by_name

    def find(self, scope: RunnerScope, number: int) -> Runner | None:
        """Return the runner with this ID if it is registered in this scope, or None."""
        return self._of_scope.get(scope.key, {}).get(number)

    def seen(self, runner: Runner) -> None:
        """Record that a runner sent a request now. Raises RunnerGoneError."""
        if runner.gone or runner.spent:
            raise RunnerGoneError
        runner.seen_at = self._clock.now()

    def online(self, runner: Runner) -> bool:
        """Return whether a runner has sent a request lately."""
        if not runner.connected or runner.spent:
            return False
        return (
            runner.poll is not None or self._clock.now() - runner.seen_at < self._patience.presence
        )

    def open_poll(self, runner: Runner) -> "asyncio.Future[Job | None]":
        """Open a runner's poll and end its earlier one. A runner without a job is idle from now on."""
        if runner.poll is not None:
            self.close_poll(runner, None)
        runner.poll = asyncio.get_running_loop().create_future()
        if runner.job is None and runner.connected:
            self._matching.add_runner(runner.kind, runner.id)
        return runner.poll

    async def wait(self, runner: Runner, seconds: float) -> Job | None:
        """Return the answer to a runner's poll, or None after this many real seconds."""
        poll = self.open_poll(runner)
        try:
            async with asyncio.timeout(seconds):
                return await poll
        except TimeoutError:
            return None
        finally:
            if runner.poll is poll:
                self.close_poll(runner, None)

    def close_poll(self, runner: Runner, answer: Job | None) -> None:
        """Mark a runner as not idle and answer its poll, if it has one."""
        self._matching.remove_runner(runner.kind, runner.id)
        poll, runner.poll = runner.poll, None
        if poll is not None and not poll.done():
            poll.set_result(answer)

    def close_polls(self) -> None:
        """Answer every open poll."""
        for runner in self.by_id.values():
            if runner.poll is not None:
                self.close_poll(runner, None)

    def _remove_if_idle(self, runner: Runner) -> None:
        if not runner.gone and runner.job is None:
            self.remove(runner)

    def _remove_if_away(self, runner: Runner) -> None:
        """Remove an ephemeral runner that has been offline for long enough."""
        if runner.gone:
            return
        due = runner.seen_at + self._patience.removal
        if self._clock.now() >= due and runner.job is None and not self.online(runner):
            self.remove(runner)
            return
        later = max(due, self._clock.now() + self._patience.presence)
        self._timers.at(later, partial(self._remove_if_away, runner))
