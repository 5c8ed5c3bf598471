"""Puts jobs on hold that GitHub keeps queued although runners with their labels were idle.

A job is on hold after two different idle runners did not get it. If GitHub has given no job of the repository
to a runner of the runner group yet, the group probably does not admit the repository. Then all its jobs in the
group are on hold after two idle runners, whatever their labels, later ones too. One at a time is retried. If
GitHub shows that the group refuses the repository (`runner_groups`), its jobs are on hold without any runner.

A hold ends when GitHub gives a job of the class and the repository to a runner of the group, and the hold of a
repository when it gives any of its jobs to one. The start of another repository's job proves nothing: a group
admits each repository by itself (docs.github.com, "Managing access to self-hosted runners using groups").
Probes retry a job from time to time. A job that a runner may already have run is read at GitHub first.
"""

from collections.abc import Iterator

from autoscaler.ledger.records.indexes import ON_HOLD_AFTER, Place, is_on_hold, place_of
from autoscaler.ledger.records.state import LedgerState, PassedOver
from autoscaler.model.backoff import Backoff
from autoscaler.model.identifiers import Instant, RunnerName, Seconds
from autoscaler.model.jobs.job import Admission, Job, JobState
from autoscaler.model.jobs.labels import covers
from autoscaler.model.jobs.runners import CHECKED_EVERY, PASSED_OVER_AFTER, Runner, RunnerState
from autoscaler.model.machines.machine import Machine
from autoscaler.model.wording import counted

PROBES = Backoff(600.0, 3600.0)

_KEPT_RUNNERS = 8
"""How many of the runners that got no job of a repository are kept. `PROBES` grows no more before that."""

GROUP_VALID: Seconds = 7200.0
"""How long a reading of a runner group counts: two of the hourly readings. Each extends the holds."""

JOB_ASSIGNED_WITHIN: Seconds = 60.0
"""GitHub gives an assigned job to another runner after a minute (actions/scaleset README)."""

CHECKED_AT_ONCE = 40
"""Maximum number of idle runners (about 250 us each) that one TimePassed event checks."""

_LOOK_AT = 100
"""How many of a class's oldest jobs are compared to find the job that a runner did not get."""


def left_idle(state: LedgerState, machine: Machine, at: Instant) -> None:
    """Mark or dispute a job if a machine leaves whose runner had no known job.

    GitHub passed the runner over, or gave it a job and has not reported it yet. So the job is read at
    GitHub. If no job can be marked as passed over, the oldest job is the most likely one.
    """
    runner = state.runner_of(machine)
    if runner is None or runner.state is not RunnerState.LISTENING or runner.passed_over:
        return
    before = at - JOB_ASSIGNED_WITHIN
    if runner.since <= before and _mark_passed_over(state, runner, at, before):
        return
    job = min(_fitting(state, runner), key=lambda job: (job.queued_at, job.id), default=None)
    if job is not None:
        state.dispute(job, at, f"{runner.name} exited, and may have run it")


def remove_marks_of(state: LedgerState, machine: Machine, at: Instant) -> None:
    """Remove the passed-over marks of a runner that could not connect to GitHub.

    The agent deleted its registration before it reported this, and a job was marked then. Without this
    function jobs would stay on hold for up to an hour after runners can connect again.
    """
    runner = state.runner_of(machine)
    if runner is not None and runner.job is None:
        _remove_marks(state, runner, at, f"{runner.name} could not connect to GitHub")


def _remove_marks(state: LedgerState, runner: Runner, at: Instant, why: str) -> None:
    """Remove the marks of a runner from all jobs and repositories. O(those with marks)."""
    for place, passed_over in tuple(state.passed_over.items()):
        passed_over.runners.pop(runner.name, None)
        if not passed_over.runners:
            del state.passed_over[place]
    for jobs in tuple(state.jobs_passed_over.values()):
        for job in tuple(jobs.values()):
            if runner.name in job.passed_over:
                with state.changing(job):
                    job.passed_over = tuple(one for one in job.passed_over if one != runner.name)
                    if len(job.passed_over) < ON_HOLD_AFTER:
                        job.probe_at = None
                state.note(job, at, "released", why)


def check_idle_runners(state: LedgerState, at: Instant) -> None:
    """Stop counting runners as supply that were idle for three minutes while a job was queued.

    Also stop counting runners that did not start for so long. No job is marked for these.
    """
    for _ in range(CHECKED_AT_ONCE):
        if not state.idle_checks or state.idle_checks.peekitem(0)[0][0] > at:
            return
        runner = state.idle_checks.peekitem(0)[1]
        silent = runner.listening_at is None
        if silent or _mark_passed_over(state, runner, at, at - PASSED_OVER_AFTER):
            with state.changing(runner):
                runner.passed_over = True
            state.note(runner, at, "silent" if silent else "passed_over")
        else:
            with state.changing(runner):
                runner.retry_at = at + CHECKED_EVERY


def release_holds(state: LedgerState, job: Job, runner: Runner, at: Instant) -> None:
    """End the hold of a repository and of its jobs of a class: one of them started on a runner of its group.

    Jobs of another class stay on hold if a runner with their labels got none of them: that has another reason.

    A job with root may report the exit of its machine before GitHub reports the job. The exit marked another
    job then, and the mark is removed.
    """
    if runner.state is RunnerState.DONE and not runner.passed_over:
        _remove_marks(state, runner, at, f"{runner.name} had a job")
    if job.demand is None or not note_served(state, job, runner):
        return
    place = place_of(job, job.demand)
    ended = state.passed_over.pop(place, None)
    for other in tuple(state.jobs_passed_over.get(place, {}).values()):
        if not is_on_hold(other):
            continue
        if other.demand == job.demand:
            release(state, other, at, "a job of its class and repository started")
        elif ended is not None and other.demand not in ended.runners.values():
            release(state, other, at, "a job of its repository started")


def join_hold(state: LedgerState, job: Job, at: Instant) -> None:
    """Put a queued job on hold if its repository is: GitHub would probably not assign this job, either."""
    demand = job.demand
    if demand is None or job.state is not JobState.QUEUED or is_on_hold(job):
        return
    if (
        job.admission is not Admission.ADMITTED
        or place_of(job, demand) in state.served_repositories
    ):
        return
    if is_refused(state, job, at):
        hold_refused(state, job, at)
        return
    passed_over = state.passed_over.get(place_of(job, demand))
    if passed_over is not None and not job.passed_over and _is_enough(passed_over):
        _hold(state, job, tuple(passed_over.runners), at, max(at, passed_over.probe_at))


def probe_held(state: LedgerState, at: Instant) -> None:
    """Retry jobs on hold whose `probe_at` has passed: of a repository that is on hold, one at a time."""
    due = [
        (job.queued_at, job.id, demand)
        for demand, jobs in state.on_hold.items()
        for job in jobs.values()
        if job.probe_at is not None and job.probe_at <= at
    ]
    probing: set[Place] = set()
    for _, key, demand in sorted(due):
        job = state.jobs[key]
        place = place_of(job, demand)
        if place not in state.served_repositories:
            if place in probing:
                continue
            probing.add(place)
            if _is_probing(state, place):
                continue
        with state.changing(job):
            job.probe_at = None
        if (passed_over := state.passed_over.get(place)) is not None:
            passed_over.probe_at = at + _delay(len(passed_over.runners))
        state.note(job, at, "probe", f"passed over by {counted(len(job.passed_over), 'runner')}")


def _is_probing(state: LedgerState, place: Place) -> bool:
    """Return True if a job of a repository that is on hold is being retried."""
    return any(
        len(job.passed_over) >= ON_HOLD_AFTER and job.probe_at is None
        for job in state.jobs_passed_over.get(place, {}).values()
    )


def note_served(state: LedgerState, job: Job, runner: Runner) -> bool:
    """Note that GitHub gave a job to a runner. Return False if the runner is of another runner group."""
    demand = job.demand
    if demand is None or (runner.demand.scope, runner.demand.runner_group) != (
        demand.scope,
        demand.runner_group,
    ):
        return False
    state.served_repositories.add(place_of(job, demand))
    return True


def _mark_passed_over(state: LedgerState, runner: Runner, at: Instant, queued_by: Instant) -> bool:
    """Mark the oldest job queued by then that the idle runner could run. Return False if none.

    Jobs with the fewest marks come first, so that two runners mark two jobs. The job may already run if
    all webhooks were lost, so it is read at GitHub before it is demand again.
    """
    job = _job_not_given(state, runner, queued_by)
    if job is None:
        return False
    with state.changing(job):
        job.passed_over = (*job.passed_over, runner.name)
    state.note(job, at, "passed_over", f"by {runner.name}")
    if len(job.passed_over) >= ON_HOLD_AFTER:
        _hold(state, job, job.passed_over, at, at + _delay(len(job.passed_over)))
    state.dispute(job, at, f"{runner.name} did not get it, or runs it")
    _hold_repository(state, job, runner, at)
    return True


def _hold_repository(state: LedgerState, job: Job, runner: Runner, at: Instant) -> None:
    """Put all jobs of a job's repository in the group on hold, if the group has probably refused them.

    O(queued jobs of the group), at most once for each probe.
    """
    demand = job.demand
    if demand is None or place_of(job, demand) in state.served_repositories:
        return
    place = place_of(job, demand)
    passed_over = state.passed_over.setdefault(place, PassedOver())
    passed_over.runners[runner.name] = demand
    for oldest in tuple(passed_over.runners)[:-_KEPT_RUNNERS]:
        del passed_over.runners[oldest]
    if not _is_enough(passed_over):
        return
    names = tuple(passed_over.runners)
    passed_over.probe_at = at + _delay(len(names))
    queued = [
        other
        for of_class, queue in state.queues.items()
        if (of_class.scope, of_class.runner_group) == place[:2]
        for other in queue.values()
        if place_of(other, of_class) == place
    ]
    for other in (*queued, *state.jobs_passed_over[place].values()):
        if other.passed_over != names or other.probe_at is None:
            _hold(state, other, names, at, passed_over.probe_at)


def restore_repository_holds(state: LedgerState) -> None:
    """Count again which runners the jobs in memory did not get. O(jobs)."""
    for job in state.jobs.values():
        demand = job.demand
        if demand is None or not job.passed_over or job.runner_name is not None:
            continue
        place = place_of(job, demand)
        if place not in state.served_repositories:
            passed_over = state.passed_over.setdefault(place, PassedOver())
            for name in job.passed_over:
                runner = state.runners.get(name)
                passed_over.runners[name] = demand if runner is None else runner.demand
            passed_over.probe_at = max(passed_over.probe_at, job.probe_at or 0.0)


def _is_enough(passed_over: PassedOver) -> bool:
    return len(passed_over.runners) >= ON_HOLD_AFTER


def _delay(runners: int) -> Seconds:
    """Return the delay before the next probe of what this many runners did not get."""
    return PROBES.delay(runners - ON_HOLD_AFTER)


def _hold(
    state: LedgerState, job: Job, runners: tuple[RunnerName, ...], at: Instant, probe_at: Instant
) -> None:
    with state.changing(job):
        job.passed_over, job.probe_at = runners, probe_at
    state.note(job, at, "on_hold", f"passed over by {', '.join(runners[-2:])}")


def is_refused(state: LedgerState, job: Job, at: Instant) -> bool:
    """Return True if GitHub has lately shown that the job's runner group refuses its repository."""
    demand = job.demand
    if demand is None:
        return False
    group, read_at = state.runner_groups.get((demand.scope, demand.runner_group), (None, 0.0))
    is_public = job.origin is not None and job.origin.public
    return (
        group is not None
        and at - read_at < GROUP_VALID
        and group.refuses(job.repository, is_public)
    )


def hold_refused(state: LedgerState, job: Job, at: Instant) -> None:
    """Put a job on hold whose group refuses its repository, until the next readings of the group."""
    if not is_on_hold(job) or job.passed_over:
        state.note(job, at, "on_hold", "its runner group does not admit its repository")
    with state.changing(job):
        job.passed_over = ()
        job.probe_at = at + GROUP_VALID


def release(state: LedgerState, job: Job, at: Instant, why: str) -> None:
    """End the hold of a job."""
    with state.changing(job):
        job.passed_over = ()
        job.probe_at = None
    if not job.disputed:
        state.reads.pop(job.id, None)
    state.note(job, at, "released", why)


def _job_not_given(state: LedgerState, runner: Runner, queued_by: Instant) -> Job | None:
    return min(
        (
            job
            for job in _fitting(state, runner)
            if job.queued_at <= queued_by and runner.name not in job.passed_over
        ),
        key=lambda job: (len(job.passed_over), job.queued_at, job.id),
        default=None,
    )


def _fitting(state: LedgerState, runner: Runner) -> Iterator[Job]:
    """Yield the oldest queued jobs of each class that the runner could run."""
    offered = frozenset(runner.demand.runner_labels)
    for demand, queue in state.queues.items():
        if (
            demand.scope == runner.demand.scope
            and demand.runner_group == runner.demand.runner_group
            and covers(offered, demand.labels)
        ):
            yield from queue.values()[:_LOOK_AT]
