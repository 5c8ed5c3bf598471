"""Settings of the lab's GitHub: organizations, jobs to push, limits and faults.

Frozen values. Durations are lab seconds unless a name says otherwise.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

DEFAULT_GROUP = "Default"
ENTERPRISE_VERSION = "3.19.0"

PERMISSIONS = {
    "actions": "read",
    "administration": "write",
    "metadata": "read",
    "organization_self_hosted_runners": "write",
}
EVENTS = ("workflow_job",)
"""The permissions and events of the Apps in the settings."""

AccountKind = Literal["Organization", "User"]

Oddity = Literal[
    "unannounced",  # `queued` is never sent: actions-runner-controller#2788, ubicloud PR 1042
    "queued_as_waiting",  # an environment's `queued` says status=waiting: GitHub's own example
    "waiting_twice",  # github.com/orgs/community/discussions/63097
    "waiting_first",  # `waiting` overtakes `queued`: runs-on#539
    "started_as_queued",  # `in_progress` says status=queued: octokit/webhooks' schema allows it
    "completed_first",  # `completed` overtakes everything before it
    "completed_without_labels",  # actions-runner-controller#1370
]
"""How the webhooks of a job differ from its real changes."""


@dataclass(frozen=True, slots=True)
class LabApp:
    """A GitHub App. It is installed on the `organizations` with these logins; None means all.

    `public_key` is PEM. If `webhook_url` is None, GitHub delivers nothing until a URL is set.
    """

    id: int
    public_key: bytes
    webhook_secret: str = field(repr=False)
    webhook_url: str | None = None
    organizations: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class LabRunnerGroup:
    """A runner group in addition to the default one. `repositories` (short names) None means all.

    Public repositories get its runners only if the group allows them. With `workflows`
    (`owner/name/.github/workflows/ci.yml@branch`) only jobs of these workflows get them. Source:
    docs.github.com, "Managing access to self-hosted runners using groups". The lab chooses an `id` of
    None.
    """

    name: str
    repositories: tuple[str, ...] | None = None
    allows_public_repositories: bool = False
    workflows: tuple[str, ...] | None = None
    id: int | None = None


@dataclass(frozen=True, slots=True)
class LabOrganization:
    """An organization with its repositories (short names). Those in `public` are public, others private.

    With the kind `User` it is the account of a user, who owns the repositories: without runner groups.
    """

    login: str
    repositories: tuple[str, ...]
    runner_groups: tuple[LabRunnerGroup, ...] = ()
    public: tuple[str, ...] = ()
    kind: AccountKind = "Organization"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job to push. `repository` is `owner/name`; `seconds` is how long the job runs.

    `seconds` may be `math.inf`: until `end` is called. `needs` are names of jobs of the same run that must
    succeed before this one is queued. Names are unique within a run. `group` is the group of `runs-on: {group:
    ...}`. Jobs of one push, repository and workflow without a `run_id` make one new run. `approval` is how long
    an environment's protection holds the job back: GitHub then reports queued, waiting, queued. None is no
    protection. `fork` is the `owner/name` from which a pull request's run comes. `event` started the run; None
    is `pull_request` with a fork, otherwise `push`. `branch` is the head branch; with `tag` it is a tag, which
    a run shows alike. `oddities` change what webhooks say about the job.
    """

    name: str
    repository: str
    labels: tuple[str, ...]
    seconds: float
    needs: tuple[str, ...] = ()
    group: str | None = None
    workflow: str = "CI"
    run_id: int | None = None
    branch: str = "main"
    approval: float | None = None
    fork: str | None = None
    event: str | None = None
    tag: bool = False
    oddities: frozenset[Oddity] = frozenset()


@dataclass(frozen=True, slots=True)
class Limits:
    """GitHub's rate limits (docs: rate limits for the REST API; Actions limits).

    Per installation: requests and registrations an hour, and requests at the same time. Per installation and
    endpoint: points a minute (a read is 1, a write 5). Per organization: registrations in 5 minutes.
    """

    requests_per_hour: int = 5000
    registrations_per_hour: int = 10_000
    registrations_per_5_minutes: int = 1500
    points_per_minute: int = 900
    concurrent: int = 100


@dataclass(frozen=True, slots=True)
class DeliveryFaults:
    """Shares (0 to 1) of first deliveries that go wrong. Redeliveries succeed.

    `fail`: the delivery fails, is logged, and can be redelivered. `drop`: it is neither sent nor logged.
    `duplicate`: it is sent twice. `reorder`: it is held back for up to `hold` seconds.
    """

    fail: float = 0.0
    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    hold: float = 30.0


@dataclass(frozen=True, slots=True)
class AnswerFault:
    """What goes wrong with REST answers.

    | kind | the caller gets |
    |---|---|
    | status | `status` with GitHub's JSON, and `retry_after` (seconds) if given |
    | answer | `status` with `headers` and `body`: bytes as they are, other values as JSON |
    | changed | GitHub's answer: `change` applied to the JSON of a success, and `headers`; None removes one |
    | html, html_as_json | `status` with a page, as HTML or with the content type of JSON |
    | stall | nothing, for as long as the caller waits |
    | dropped | the connection closed without an answer |
    | cut, garbled | half of a body: shorter than its Content-Length, or with a matching one |

    `route` is a route as `LabGitHub.calls` names it, None for all. `request` is a pattern that is searched in
    `METHOD /path?query`. `by` is an installation ID: the fault hits only requests with its tokens. The fault
    hits the next `times` requests (None: all, until other faults are set), or this `share` (0 to 1) of them.
    `done`: GitHub carries the request out nevertheless; with cut, garbled and changed it always does. `then` is
    called when the fault hits: before the request is carried out, or after it if `done`. The caller gets
    nothing until `until` is set.
    """

    kind: Literal[
        "status", "answer", "changed", "html", "html_as_json", "stall", "dropped", "cut", "garbled"
    ]
    route: str | None = None
    times: int | None = 1
    share: float = 1.0
    status: int = 502
    retry_after: int | None = None
    headers: Mapping[str, str | None] = field(default_factory=dict)
    body: object = b""
    change: Callable[[Any], Any] = lambda shown: shown
    done: bool = False
    then: Callable[[], None] = lambda: None
    until: asyncio.Event | None = None
    request: str | None = None
    by: int | None = None


@dataclass(frozen=True, slots=True)
class Patience:
    """How long GitHub waits for runners and jobs.

    `start`: an assigned job that was not started goes to another runner. `lock`: a running job with a silent
    runner fails. `queue`: a queued job fails. `cancel`: GitHub ends a cancelled job that its runner does not
    end. `presence`: a silent runner counts as offline. `removal`: an offline ephemeral runner is removed.
    `idle`: an online ephemeral runner without a job is removed (reports say after 2 to 60 minutes).
    `real_floor`: the minimum of `start`, `lock`, `cancel` and `presence` in real seconds, so that a fast lab on
    a busy host does not fail healthy runners.
    """

    start: float = 60.0
    lock: float = 600.0
    queue: float = 86_400.0
    cancel: float = 300.0
    presence: float = 300.0
    removal: float = 86_400.0
    idle: float = math.inf
    real_floor: float = 5.0

    def at(self, scale: float) -> "Patience":
        """Return these durations for a lab of this scale, none below `real_floor` real seconds."""
        floor = self.real_floor * scale
        return replace(
            self,
            start=max(self.start, floor),
            lock=max(self.lock, floor),
            cancel=max(self.cancel, floor),
            presence=max(self.presence, floor),
        )


@dataclass(frozen=True, slots=True)
class LabGitHubOptions:
    """How the lab's GitHub behaves.

    `scale` is lab seconds per real second, as of the given clock. `limits` None removes all limits. `pick`
    chooses among several matching runners or jobs: the one that waited longest, or any (by `seed`). The first
    `lose_jobs` queued jobs disappear from the queue. `delivery_timeout` and `token_lifetime` are real seconds.
    `base_path` begins every REST path; an Enterprise Server has `/api/v3`. For `list_cache` seconds, lists of
    runners are answered as before, so that `busy` may be out of date. Each request waits `latency` real seconds
    before it is carried out. A runner with a version below `oldest_runner` gets no jobs
    (BrokerErrorKind.RunnerVersionTooOld of actions/runner's Sdk). `port` is that of loopback; 0 is any
    free one. The IDs of runs, jobs and runners are larger by `ids_after`: a controller that knows those of an
    earlier GitHub must not meet them again.
    """

    scale: float = 1.0
    limits: Limits | None = None
    faults: DeliveryFaults = DeliveryFaults()
    answer_faults: tuple[AnswerFault, ...] = ()
    patience: Patience = Patience()
    pick: Literal["fifo", "arbitrary"] = "fifo"
    seed: int = 0
    lose_jobs: int = 0
    delivery_timeout: float = 10.0
    delivery_concurrency: int = 32
    token_lifetime: float = 3600.0
    base_path: str = ""
    list_cache: float = 0.0
    latency: float = 0.0
    oldest_runner: str = "2.329.0"
    port: int = 0
    ids_after: int = 0
