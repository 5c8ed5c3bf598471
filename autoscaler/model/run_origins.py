"""Where a workflow run comes from, as far as `access` depends on it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunOrigin:
    """The origin of a run, and with it of all its jobs.

    `from_fork`: its head repository is another repository than the run's own. `public`: its own
    repository is public. `branch`: the branch on which it is, as `access_rules.branch_of_run` returns it; None
    if it is on none.
    """

    from_fork: bool
    public: bool
    branch: str | None
