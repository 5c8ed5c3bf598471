"""Workflow runs and their jobs: creates the jobs of a push, and queues or skips jobs when others complete."""

from collections.abc import Mapping, Sequence

from autoscaler.model.jobs.labels import label_set
from lab.github.records import Job, JobClass, JobStatus, Organization, Repository, Run
from lab.github.settings import JobSpec

FIRST_JOB = 40_000_000_001
FIRST_RUN = 12_000_000_001
FIRST_FORK = 900_000_001
DEFAULT_BRANCH = "main"
WORKFLOW_PATH = ".github/workflows/ci.yml"


class Workflows:
    """All runs and jobs that ever existed, by ID. `organizations` are by login in lower case.

    The IDs are larger by `ids_after`.
    """

    def __init__(self, organizations: Mapping[str, Organization], ids_after: int = 0) -> None:
        self._organizations = organizations
        self._first_run = FIRST_RUN + ids_after
        self._first_job = FIRST_JOB + ids_after
        self.jobs: dict[int, Job] = {}
        self.runs: dict[int, Run] = {}
        self.runs_of: dict[str, dict[int, Run]] = {}
        self._forks: dict[str, Repository] = {}

    def repository(self, full_name: str) -> Repository:
        """Return a repository by `owner/name`, in any case. Raises ValueError for an unknown one."""
        owner, _, name = full_name.lower().partition("/")
        organization = self._organizations.get(owner)
        if organization is None or name not in organization.repositories:
            raise ValueError(f"the lab has no repository {full_name!r}")
        return organization.repositories[name]

    def create(self, specs: Sequence[JobSpec], now: float) -> list[Job]:
        """Create the jobs of one push, in order. Jobs without open needs are ready.

        Raises ValueError, and creates nothing, for unknown repositories, names that a run already has, and
        needs that the run does not have or that form a cycle.
        """
        fresh: dict[tuple[str, str], int] = {}
        planned: list[tuple[int, JobSpec]] = []
        names: dict[int, dict[str, JobSpec]] = {}
        for spec in specs:
            repository = self.repository(spec.repository).full_name
            run_id = spec.run_id
            if run_id is None:
                next_run = self._first_run + len(self.runs) + len(fresh)
                run_id = fresh.setdefault((repository, spec.workflow), next_run)
            self._check_name(run_id, spec, names.setdefault(run_id, {}))
            planned.append((run_id, spec))
        for run_id, by_name in names.items():
            self._check_needs(run_id, by_name)
        return self._linked([self._make(run_id, spec, now) for run_id, spec in planned])

    def repeat(self, run: Run, now: float, only: Job | None = None) -> list[Job]:
        """Create a new attempt of a run's unsuccessful jobs, or of one job, under new IDs.

        Raises ValueError while one of the run's jobs has not ended.
        """
        if any(job.status is not JobStatus.COMPLETED for job in run.jobs.values()):
            raise ValueError(f"run {run.id} has not ended")
        failed = [job for job in run.jobs.values() if job.conclusion != "success"]
        failed = failed if only is None else [only]
        if failed:
            run.attempt += 1
            run.earlier += failed
        return self._linked([self._make(run.id, job.spec, now) for job in failed])

    @staticmethod
    def released(job: Job) -> tuple[list[Job], list[Job]]:
        """Return the jobs that a completed job queues, and those that it skips.

        Both are its direct dependents: a skipped job completes, too, and has dependents of its own.
        """
        ready: list[Job] = []
        skipped: list[Job] = []
        for dependent in job.needed_by:
            if dependent.status is not JobStatus.BLOCKED:
                continue
            if job.conclusion != "success":
                skipped.append(dependent)
                continue
            dependent.open_needs -= 1
            if dependent.open_needs == 0:
                ready.append(dependent)
        return ready, skipped

    def _check_name(self, run_id: int, spec: JobSpec, names: dict[str, JobSpec]) -> None:
        run = self.runs.get(run_id)
        first = next(iter(names.values()), spec)
        if spec.name in names or (run is not None and spec.name in run.jobs):
            raise ValueError(f"run {run_id} has two jobs named {spec.name!r}")
        owned_by = run.repository.full_name if run is not None else first.repository
        if owned_by.lower() != spec.repository.lower():
            raise ValueError(f"run {run_id} is of two repositories")
        names[spec.name] = spec

    def _check_needs(self, run_id: int, names: Mapping[str, JobSpec]) -> None:
        """Check that every need exists and that needs have no cycle."""
        run = self.runs.get(run_id)
        earlier = run.jobs if run is not None else {}
        open_needs: dict[str, int] = {}
        needed_by: dict[str, list[str]] = {}
        for name, spec in names.items():
            open_needs[name] = sum(need in names for need in spec.needs)
            for need in spec.needs:
                if need not in names and need not in earlier:
                    raise ValueError(
                        f"job {name!r} needs {need!r}, which run {run_id} does not have"
                    )
                needed_by.setdefault(need, []).append(name)
        ready = [name for name, count in open_needs.items() if count == 0]
        for name in ready:
            for dependent in needed_by.get(name, ()):
                open_needs[dependent] -= 1
                if open_needs[dependent] == 0:
                    ready.append(dependent)
        if len(ready) < len(names):
            circle = sorted(set(names) - set(ready))
            raise ValueError(f"jobs of run {run_id} need each other in a circle: {circle}")

    @staticmethod
    def _linked(jobs: list[Job]) -> list[Job]:
        """Return the same jobs, each with the jobs that it needs."""
        for job in jobs:
            for need in (job.run.jobs[name] for name in job.spec.needs):
                if need.status is not JobStatus.COMPLETED:
                    need.needed_by.append(job)
                    job.open_needs += 1
        return jobs

    def _make(self, run_id: int, spec: JobSpec, now: float) -> Job:
        repository = self.repository(spec.repository)
        run = self.runs.get(run_id)
        if run is None:
            head = repository if spec.fork is None else self._fork(spec.fork)
            event = spec.event or ("push" if spec.fork is None else "pull_request")
            number = len(self.runs) + 1
            ref = _ref(spec, event, number)
            run = Run(run_id, number, repository, spec.workflow, spec.branch, now, head, event, ref)
            self.runs[run_id] = run
            self.runs_of.setdefault(repository.full_name, {})[run_id] = run
        kind = JobClass(
            repository.owner.lower(),
            repository.name.lower(),
            spec.group.lower() if spec.group is not None else None,
            label_set(spec.labels),
            f"{repository.full_name}/{WORKFLOW_PATH}@{spec.branch}",
        )
        number = self._first_job + len(self.jobs)
        job = Job(number, spec, run, kind, len(self.jobs), now, run.attempt)
        self.jobs[number] = job
        run.jobs[spec.name] = job
        return job

    def _fork(self, full_name: str) -> Repository:
        """Return another user's fork by `owner/name`. Creates it at the first use."""
        if full_name not in self._forks:
            owner, _, name = full_name.partition("/")
            number = FIRST_FORK + len(self._forks)
            self._forks[full_name] = Repository(
                number, owner, number, name, private=False, fork=True
            )
        return self._forks[full_name]


def _ref(spec: JobSpec, event: str, number: int) -> str:
    """Return GITHUB_REF (GitHub documentation, "Events that trigger workflows").

    A pull request has the number of its run.
    """
    if event == "pull_request_target":
        return f"refs/heads/{DEFAULT_BRANCH}"
    if event.startswith("pull_request"):
        return f"refs/pull/{number}/merge"
    return f"refs/{'tags' if spec.tag else 'heads'}/{spec.branch}"
