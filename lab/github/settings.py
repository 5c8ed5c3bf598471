"""Settings of the lab's GitHub: organizations, jobs to push, limits and faults.

Frozen values. Durations are lab seconds unless a name says otherwise.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

DEFAULT_GROUP = "Default"
ENTERPRISE_VERSION = "3.19.0"

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
    """A GitHub App, installed on every organization of the lab.

    `public_key` is PEM. Without a `webhook_url` nothing is delivered until one is set.
    """

    id: int
    public_key: bytes
    webhook_secret: str = field(repr=False)
    webhook_url: str | None = None


@dataclass(frozen=True, slots=True)
class LabRunnerGroup:
    """A runner group beside the default one. `repositories` (short names) None means all.

    Public repositories get its runners only where it allows them; with `workflows` only jobs of those
    do (`owner/name/.github/workflows/ci.yml@branch`): docs.github.com, "Managing access to
    self-hosted runners using groups".
    """

    name: str
    repositories: tuple[str, ...] | None = None
    allows_public_repositories: bool = False
    workflows: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class LabOrganization:
    """An organization with its repositories (short names); those of `public` are not private."""

    login: str
    repositories: tuple[str, ...]
    runner_groups: tuple[LabRunnerGroup, ...] = ()
    public: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job to push. `repository` is `owner/name`, `seconds` how long it runs (`math.inf`: until
    `end` is called).

    `needs` are names of jobs of the same run, which must have succeeded before this one is
    queued; names are unique within a run. `group` is what `runs-on: {group: ...}` would ask for.
    Without a `run_id` the jobs of one push, repository and workflow make one new run.
    `approval` is for how long an environment's protection holds the job back (None: it does not):
    GitHub then says queued, waiting, queued. `fork` is the `owner/name` that a pull request's run
    comes from. `oddities` bend what webhooks say of it.
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
    oddities: frozenset[Oddity] = frozenset()


@dataclass(frozen=True, slots=True)
class Limits:
    """GitHub's rate limits (docs: rate limits for the REST API; Actions limits).

    Requests and registrations an hour are per installation, points a minute per installation and
    endpoint (a read is 1, a write 5), registrations per 5 minutes per organization, requests at
    the same time per installation.
    """

    requests_per_hour: int = 5000
    registrations_per_hour: int = 10_000
    registrations_per_5_minutes: int = 1500
    points_per_minute: int = 900
    concurrent: int = 100


@dataclass(frozen=True, slots=True)
class DeliveryFaults:
    """Shares (0 to 1) of first deliveries that go wrong; redeliveries go through.

    `fail`: the delivery fails, is logged, and can be redelivered. `drop`: it is neither sent nor
    logged. `duplicate`: sent twice. `reorder`: held back for up to `hold` seconds.
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
    | status | `status` with GitHub's JSON, `retry_after` (seconds) beside it where given |
    | html, html_as_json | `status` with a page, under its own or JSON's content type |
    | stall | nothing, for as long as it waits |
    | dropped | the connection closed without an answer |
    | cut, garbled | half a body: short of its Content-Length, or with one that fits |

    `route` is one as `LabGitHub.calls` names it, None any. It strikes the next `times` requests
    (None: all, until other faults are set), or this `share` (0 to 1) of them. `done`: the request
    is carried out nevertheless, as a cut and a garbled one always are. `then` is called when the
    fault strikes: before the request is carried out, or after that where it is.
    """

    kind: Literal["status", "html", "html_as_json", "stall", "dropped", "cut", "garbled"]
    route: str | None = None
    times: int | None = 1
    share: float = 1.0
    status: int = 502
    retry_after: int | None = None
    done: bool = False
    then: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Patience:
    """How long GitHub waits for runners and jobs.

    `start`: an assigned job not started is given to another runner. `lock`: a running job whose
    runner was silent fails. `queue`: a job queued for longer fails. `cancel`: a cancelled job
    that its runner does not end is ended. `presence`: a silent runner counts as offline.
    `removal`: an ephemeral runner offline for that long is removed. `idle`: so is one that has
    been online for that long without a job (reports say 2 to 60 minutes). `real_floor`: in real
    seconds, the least that `start`, `lock`, `cancel` and `presence` may come to, so that a fast
    lab on a busy machine does not fail healthy runners.
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
        """The same with what may not come to less than `real_floor` real seconds made longer."""
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
    """How this GitHub behaves.

    `scale` is lab seconds per real second, as of the clock that is given beside it. `limits` None
    lifts them all. `pick` is which of several fitting runners or jobs is taken: the one that
    waited longest, or any (by `seed`). The first `lose_jobs` queued jobs vanish from the queue.
    `delivery_timeout` and `token_lifetime` are real seconds.
    `base_path` stands before every REST path: an Enterprise Server's is `/api/v3`. Lists of runners
    are answered for `list_cache` seconds as they were, so that `busy` may be stale. Every request
    takes `latency` real seconds before anything is done about it. A runner of a version below
    `oldest_runner` gets no jobs (BrokerErrorKind.RunnerVersionTooOld of actions/runner's Sdk).
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
