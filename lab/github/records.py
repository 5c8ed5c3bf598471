"""The records of the lab's GitHub: organizations, runs, jobs and runners.

Only the Actions service changes them. Times are lab time in Unix seconds.
"""

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from lab.github.settings import JobSpec


class JobStatus(StrEnum):
    """GitHub's words, and `blocked` for a job that GitHub does not show yet (its needs are open)."""

    BLOCKED = "blocked"
    WAITING = "waiting"
    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class RunnerGroup:
    """`repositories` are short names in lower case, or None for all; `workflows` None is any.

    `open_to` are the repositories whose jobs its runners take: public ones only where it allows them.
    """

    id: int
    name: str
    repositories: frozenset[str] | None
    open_to: frozenset[str] | None = None
    allows_public_repositories: bool = False
    workflows: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Repository:
    """One repository; `owner` is its organization's login."""

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
    """Groups are found by id, repositories by short name in lower case."""

    id: int
    login: str
    groups: dict[int, RunnerGroup]
    repositories: dict[str, Repository]


class JobClass(NamedTuple):
    """The parts of a job that matter for matching, in lower case."""

    organization: str
    repository: str
    group: str | None
    labels: frozenset[str]
    workflow: str = ""


class RunnerClass(NamedTuple):
    """The parts of a runner that matter for matching; `repository` is None for an organization's."""

    organization: str
    repository: str | None
    group: str
    group_repositories: frozenset[str] | None
    labels: frozenset[str]
    group_workflows: frozenset[str] | None = None


@dataclass(slots=True, eq=False)
class Run:
    """One workflow run: the last attempt at each of its jobs by name, and those before it.

    `head` is the repository that its commit is of: a fork, or its own.
    """

    id: int
    number: int
    repository: Repository
    workflow: str
    branch: str
    created_at: float
    head: Repository
    attempt: int = 1
    jobs: dict[str, "Job"] = field(default_factory=dict)
    earlier: list["Job"] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Job:
    """One job. `starts` names the runners that began it: one name, if all is well.

    `assigned` is how often it was handed to a runner, started or not. `lost`: it vanished from
    the queue on purpose. `over`: it ends now, whatever its seconds. `lease` is until when its
    runner's silence is no reason to fail it.
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
    runner: "Runner | None" = None
    starts: list[str] = field(default_factory=list)
    assigned: int = 0
    lease: float = 0.0
    cancelled: bool = False
    over: bool = False
    lost: bool = False


@dataclass(slots=True, eq=False)
class Runner:
    """One registration. `job` is what it was handed; `spent` once it has had its one job.

    `poll` is its open long poll: it is answered with a job, or with None when there is none.
    """

    id: int
    name: str
    scope: str
    group: RunnerGroup
    labels: tuple[str, ...]
    kind: RunnerClass
    token: str = field(repr=False)
    seen_at: float = 0.0
    connected: bool = False
    spent: bool = False
    gone: bool = False
    job: Job | None = None
    poll: "asyncio.Future[Job | None] | None" = None
