"""The records of the lab's GitHub: organizations, runs, jobs and runners.

Only the Actions service changes them. Times are lab time in Unix seconds.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from lab.github.settings import AccountKind, JobSpec


class JobStatus(StrEnum):
    """GitHub's words, and `blocked`: GitHub does not show the job yet, because its needs are open."""

    BLOCKED = "blocked"
    WAITING = "waiting"
    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class RunnerGroup:
    """A runner group. `repositories` are short names in lower case, or None for all.

    `workflows` are the workflows that may use it, None for all. `open_to` are the repositories whose jobs its
    runners accept; public ones only if the group allows them.
    """

    id: int
    name: str
    repositories: frozenset[str] | None
    open_to: frozenset[str] | None = None
    allows_public_repositories: bool = False
    workflows: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Repository:
    """One repository. `owner` is the login of its organization."""

    id: int
    owner: str
    owner_id: int
    name: str
    private: bool = True
    fork: bool = False
    created_at: float = 0.0

    @property
    def full_name(self) -> str:
        """`owner/name`."""
        return f"{self.owner}/{self.name}"


@dataclass(frozen=True, slots=True, eq=False)
class Organization:
    """An organization or a user. Its groups are by ID, its repositories by short name in lower case."""

    id: int
    login: str
    groups: dict[int, RunnerGroup]
    repositories: dict[str, Repository]
    kind: AccountKind = "Organization"


@dataclass(slots=True)
class RegisteredApp:
    """What GitHub shows of an App. `owner` is a login, and `hook_url` that of its webhook.

    `hook_content_type` is `json` or `form`. `hook_insecure`: GitHub does not check the webhook's certificate.
    """

    id: int
    name: str
    owner: str
    permissions: Mapping[str, str]
    events: Sequence[str]
    url: str
    hook_url: str = ""
    hook_active: bool = True
    hook_content_type: str = "json"
    hook_insecure: bool = False

    @property
    def slug(self) -> str:
        """The name in URLs."""
        return re.sub("[^a-z0-9]+", "-", self.name.lower()).strip("-")


class JobClass(NamedTuple):
    """The properties of a job that matter for matching, in lower case."""

    organization: str
    repository: str
    group: str | None
    labels: frozenset[str]
    workflow: str = ""


class RunnerClass(NamedTuple):
    """The properties of a runner that matter for matching. `repository` is None for an organization's."""

    organization: str
    repository: str | None
    group: str
    group_repositories: frozenset[str] | None
    labels: frozenset[str]
    group_workflows: frozenset[str] | None = None


@dataclass(slots=True, eq=False)
class Run:
    """One workflow run: the last attempt of each job by name, and the earlier attempts.

    `head` is the repository of its commit: a fork, or the run's own repository. `event` started it. `ref` is
    its jobs' GITHUB_REF, which no REST answer shows.
    """

    id: int
    number: int
    repository: Repository
    workflow: str
    branch: str
    created_at: float
    head: Repository
    event: str
    ref: str
    attempt: int = 1
    jobs: dict[str, "Job"] = field(default_factory=dict)
    earlier: list["Job"] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Job:
    """One job. `starts` names the runners that started it: exactly one, unless something is wrong.

    `assigned` counts how often GitHub gave it to a runner, started or not. `lost`: a fault removed it from the
    queue. `over`: it must end now, before its `seconds` have passed. `lease` is the time until which the
    silence of its runner does not fail the job. `stepped`: a step of its own ran, after the job hook.
    """

    id: int
    spec: JobSpec
    run: Run
    kind: JobClass
    order: int
    created_at: float
    attempt: int = 1
    status: JobStatus = JobStatus.BLOCKED
    open_needs: int = 0
    needed_by: list["Job"] = field(default_factory=list)
    queued_at: float | None = None
    started_at: float | None = None
    completed_at: float | None = None
    conclusion: str | None = None
    stepped: bool = False
    runner: "Runner | None" = None
    starts: list[str] = field(default_factory=list)
    assigned: int = 0
    lease: float = 0.0
    cancelled: bool = False
    over: bool = False
    lost: bool = False


@dataclass(slots=True, eq=False)
class Runner:
    """One registration. `job` is the job that it was given. `spent` is True once it has had its one job.
    `installation` is the ID of the installation that registered it.

    `poll` is its open long poll. It is answered with a job, or with None if there is none.
    """

    id: int
    name: str
    scope: str
    group: RunnerGroup
    labels: tuple[str, ...]
    kind: RunnerClass
    token: str = field(repr=False)
    installation: int
    seen_at: float = 0.0
    connected: bool = False
    spent: bool = False
    gone: bool = False
    job: Job | None = None
    poll: "asyncio.Future[Job | None] | None" = None
