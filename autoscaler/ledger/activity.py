"""Which repositories have jobs in memory, and which workflow runs have open ones, by account.

GitHub's lists are read by these, so that no reader has to look through all jobs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.model.identifiers import Instant, JobId
from autoscaler.model.jobs import Job, JobState

_OPEN = frozenset({JobState.QUEUED, JobState.WAITING, JobState.IN_PROGRESS})

RunKey = tuple[str, int]
"""A workflow run: its repository in lower case, for GitHub's names know no case, and its id."""


@dataclass(slots=True)
class ActiveRepository:
    """A repository with `jobs` in memory, as one of them spells it.

    `updated_at` is the latest `Job.updated_at` since the repository last had no job in memory.
    """

    name: str
    updated_at: Instant
    jobs: int = 0


@dataclass(slots=True)
class AccountActivity:
    """One account: its repositories by their names in lower case, and the open jobs of its runs.

    An open job counts only if a SKU serves it and its run is known.
    """

    repositories: dict[str, ActiveRepository] = field(default_factory=dict)
    runs: dict[RunKey, dict[JobId, Job]] = field(default_factory=dict)


_NOTHING = AccountActivity()


class Activity:
    """Follows every change of a job in O(1)."""

    def __init__(self) -> None:
        self._accounts: dict[str, AccountActivity] = {}

    @property
    def accounts(self) -> Mapping[str, AccountActivity]:
        """The accounts that have jobs in memory, by their names in lower case; to read."""
        return self._accounts

    def of(self, account: str) -> AccountActivity:
        """Return the activity of an account, given in lower case; to read."""
        return self._accounts.get(account, _NOTHING)

    def add(self, job: Job) -> None:
        """Count a job in."""
        name = job.repository.lower()
        owner = name.partition("/")[0]
        account = self._accounts.get(owner)
        if account is None:
            account = self._accounts[owner] = AccountActivity()
        repository = account.repositories.get(name)
        if repository is None:
            repository = ActiveRepository(job.repository, job.updated_at)
            account.repositories[name] = repository
        repository.jobs += 1
        repository.updated_at = max(repository.updated_at, job.updated_at)
        if job.run_id is not None and _counts(job):
            account.runs.setdefault((name, job.run_id), {})[job.id] = job

    def remove(self, job: Job) -> None:
        """Count a job out, as long as its fields are what they were."""
        name = job.repository.lower()
        owner = name.partition("/")[0]
        account = self._accounts[owner]
        repository = account.repositories[name]
        repository.jobs -= 1
        if not repository.jobs:
            del account.repositories[name]
        if job.run_id is not None and _counts(job):
            of_run = account.runs[name, job.run_id]
            del of_run[job.id]
            if not of_run:
                del account.runs[name, job.run_id]
        if not account.repositories:
            del self._accounts[owner]


def _counts(job: Job) -> bool:
    return job.demand is not None and job.state in _OPEN
