"""Indexes of repositories with jobs in memory and of workflow runs with open jobs, by account.

The controller reads GitHub's lists for these repositories and runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.ledger.records.entries import put_in
from autoscaler.model.identifiers import Instant, JobId
from autoscaler.model.jobs.job import Job, JobState

_OPEN = frozenset({JobState.QUEUED, JobState.WAITING, JobState.IN_PROGRESS})

RunKey = tuple[str, int]
"""A workflow run: its repository in lower case, because GitHub ignores the case, and its ID."""


@dataclass(slots=True)
class ActiveRepository:
    """A repository with `jobs` in memory. `name` is spelled as in one of them.

    `updated_at` is the latest `Job.updated_at` since the repository last had no job in memory.
    """

    name: str
    updated_at: Instant
    jobs: int = 0


@dataclass(slots=True)
class AccountActivity:
    """One account's repositories, by name in lower case, and the open jobs of its runs.

    It has only open jobs that a SKU serves and whose run is known.
    """

    repositories: dict[str, ActiveRepository] = field(default_factory=dict)
    runs: dict[RunKey, dict[JobId, Job]] = field(default_factory=dict)


_NOTHING = AccountActivity()


class Activity:
    """The activity of all accounts. A change of a job costs O(1)."""

    def __init__(self) -> None:
        self._accounts: dict[str, AccountActivity] = {}

    @property
    def accounts(self) -> Mapping[str, AccountActivity]:
        """The accounts that have jobs in memory, by name in lower case. Read-only."""
        return self._accounts

    def of(self, account: str) -> AccountActivity:
        """Return the activity of an account, given in lower case. Read-only."""
        return self._accounts.get(account, _NOTHING)

    def count(self, job: Job, sign: int) -> None:
        """Add (1) or remove (-1) a job in its repository and, if it is open, in its workflow run.

        Its fields must be the same both times.
        """
        name = job.repository.lower()
        owner = name.partition("/")[0]
        account = self._accounts.get(owner)
        if account is None:
            account = self._accounts[owner] = AccountActivity()
        repository = account.repositories.get(name)
        if repository is None:
            repository = ActiveRepository(job.repository, job.updated_at)
            account.repositories[name] = repository
        repository.jobs += sign
        repository.updated_at = max(repository.updated_at, job.updated_at)
        if job.run_id is not None and job.demand is not None and job.state in _OPEN:
            put_in(account.runs, (name, job.run_id), job.id, job, sign)
        if not repository.jobs:
            del account.repositories[name]
            if not account.repositories:
                del self._accounts[owner]
