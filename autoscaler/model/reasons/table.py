"""The table of reason codes: what is said of each, how urgent it is, and which page and alert it has.

The planner, the console, the commands, the alerts and the metrics read it, and `make pages` writes the facts
of docs/runbooks/reasons.md from it. A new code is one entry here and one section there.
"""

from collections.abc import Iterable, Mapping

from autoscaler.model.identifiers import Seconds
from autoscaler.model.reasons.entry import Code, Entry, Runbook, Severity, Threshold


def _page(name: str) -> Runbook:
    return Runbook(name, Severity.PAGE)


def _ticket(name: str) -> Runbook:
    return Runbook(name, Severity.TICKET)


OUT_OF_CAPACITY, LAUNCHES_REFUSED = _page("OutOfCapacity"), _page("LaunchesRefused")
LIMIT_REACHED, REGISTRATIONS_REFUSED = _ticket("LimitReached"), _page("RegistrationsRefused")
MACHINES_NOT_READY, CIRCUIT_BREAKER = _page("MachinesNotReady"), _page("CircuitBreakerOpen")
LISTS_STALE, UNVERIFIED = _ticket("GitHubListsStale"), _ticket("MachinesUnverified")

JOBS_NOT_SERVED = _ticket("JobsNotServed")
LEAK = _ticket("LeakSuspected")

ON_HOLD = "{about} {are} on hold: {words}"
"""Of what failed: the offerings, zones or launch options, and what their provider said."""

HALF_HOUR: Seconds = 1800.0
STILL_FAIL_WITHIN: Seconds = 7200.0
"""How long failed health checks count while no job of the SKU starts.

The circuit breaker then launches one machine at a time, at most 15 minutes apart.
"""
_REMINDER = {"reminder": "{words}; `autoscaler resume {where}` ends this"}
_SETTINGS = (
    "Settings > Actions > Runner groups (repository access, public repositories, workflow access)"
)
_PASSED_OVER = "GitHub gave jobs of {names} to none of two idle runners with their labels; "
_RETRYING = "; retrying from time to time"
_LIMITED = "GitHub's rate limit stops the registration of runners for {about}: {words}"
_ANSWERED_BY = Threshold(180.0)
"""Age of a job, in seconds, from which on a missing answer of GitHub is a fault: most come in seconds."""
NOT_SERVED = Threshold(5.0, within=HALF_HOUR)
"""Number of jobs, or age of the oldest in seconds, from which on jobs that get no machine are a fault."""
_MEND_LABELS = "correct runs-on in the workflow, or add a SKU with these labels"
_MEND_ACCESS = "nothing, or admit them with access of a SKU; the runs can be cancelled at GitHub"
_MEND_IMAGE = "repair the image, such as its driver, and publish it"
_MEND_RUNNER = "publish a new image with the newest actions/runner"
_MEND_OFFERINGS = "add zones, instance types or a launch option to the SKUs"
_GITHUB_FAILS_IT = "GitHub fails the job, because no runner took it for a day"


class WaitCode(Code):
    """Why a job waits. The values of `FailureClass` and of `Admission` are codes, too.

    The last six, from `job_unconfirmed` on, concern jobs that stand in no line yet: GitHub or `access` decides.
    """

    RUNNER_IDLE = Entry(
        "runner_idle",
        "a runner for the job registers or is idle; GitHub has not assigned the job yet",
        next_event="GitHub assigns the job to an idle runner",
    )
    MACHINE_READY = Entry(
        "machine_ready",
        "a machine for the job is ready; its runner registers within the registration rate limit",
        next_event="the runner of a ready machine registers at GitHub",
    )
    MACHINE_BOOTING = Entry("machine_booting", "a machine for the job is launching or booting")
    LAUNCH_PLANNED = Entry(
        "launch_planned",
        "a machine for the job is about to be requested",
        next_event="the controller sends a launch request",
    )
    NOT_PLANNED = Entry(
        "not_planned",
        "not planned yet",
        next_event="the controller plans, within seconds",
    )
    MAX_MACHINES = Entry(
        "max_machines",
        "max_machines of {about} ({count:g}) is reached",
        LIMIT_REACHED,
        cause="limit reached",
        next_event="a machine of the SKU ends, or an operator raises max_machines",
        mend="raise max_machines of {about} in fleet.yaml, or wait",
    )
    FLEET_MACHINES = Entry(
        "fleet_machines",
        "the fleet's limit of {machines} is reached",
        LIMIT_REACHED,
        cause="limit reached",
        next_event="a machine ends, or an operator raises limits.machines",
        mend="raise limits.machines in fleet.yaml, or wait",
    )
    FLEET_DOLLARS = Entry(
        "fleet_dollars",
        "the fleet's limit of ${count:g} an hour is reached",
        LIMIT_REACHED,
        cause="limit reached",
        next_event="machines end, or an operator raises limits.dollars_per_hour",
        mend="raise limits.dollars_per_hour in fleet.yaml, or wait",
    )
    FAIR_SHARE = Entry(
        "fair_share",
        "other repositories go first: the fair_share of {where} ({machines}) is used up by {names}",
        LIMIT_REACHED,
        cause="fair share used up",
        fires=False,
        next_event="a job of the repository ends, or the others have got their machines",
    )
    QUOTA = Entry(
        "quota",
        ON_HOLD,
        LIMIT_REACHED,
        cause="quota used up",
        next_event="a machine under the quota ends, or the provider raises the quota",
        mend="ask the provider for a larger quota",
        variants={
            "used_up": "the quota {about} is used up",
            "none": "the quota {about} leaves this fleet nothing: it is 0, or others use all of it",
            "too_small": "the quota {about} leaves this fleet {count:g}, less than one machine needs",
        },
    )
    THROTTLED = Entry(
        "throttled",
        ON_HOLD,
        LIMIT_REACHED,
        variants={
            "provider": "{about} throttles launches ({words})",
        },
    )
    LAUNCH_RATE = Entry(
        "launch_rate",
        "the launch rate of {about} is used up for a moment",
        LIMIT_REACHED,
    )
    REGISTRATION_RATE = Entry(
        "registration_rate",
        "the registration rate limit (github.registrations) allows no further runner yet",
        LIMIT_REACHED,
        cause="registration limit",
        next_event="github.registrations allows a runner for the job",
    )
    PAUSED = Entry(
        "paused",
        "{about} is {words}; `autoscaler resume {where}` ends this",
        cause="paused by an operator",
        next_event="an operator resumes what is paused",
        variants=_REMINDER,
    )
    CAPACITY = Entry(
        "capacity",
        ON_HOLD,
        OUT_OF_CAPACITY,
        cause="out of capacity",
        mend=f"{_MEND_OFFERINGS}, or wait",
        variants={
            "taken_back": "the provider takes the capacity of {about} back soon",
        },
    )
    CONFIGURATION = Entry(
        "configuration",
        ON_HOLD,
        LAUNCHES_REFUSED,
        cause="launches refused",
        mend="look up the provider's error in docs/ec2.md or docs/kubernetes.md, and correct fleet.yaml or the "
        "account",
    )
    UNSUPPORTED = Entry(
        "unsupported",
        ON_HOLD,
        OUT_OF_CAPACITY,
        cause="not offered in this zone",
        mend=_MEND_OFFERINGS,
    )
    BOOT_DEADLINE = Entry(
        "boot_deadline",
        ON_HOLD,
        MACHINES_NOT_READY,
        cause="machines do not boot",
        mend="see the machine's console output in machine_not_ready of the log; check that machines reach "
        "server.public_url and GitHub",
    )
    HEALTH_CHECK = Entry(
        "health_check",
        ON_HOLD,
        MACHINES_NOT_READY,
        cause="health checks fail",
        mend=_MEND_IMAGE,
    )
    UNKNOWN = Entry(
        "unknown",
        ON_HOLD,
        LAUNCHES_REFUSED,
        cause="launches fail",
        mend="look up the provider's error in docs/ec2.md or docs/kubernetes.md; report it if it stays",
    )
    CIRCUIT_OPEN = Entry(
        "circuit_open",
        "circuit breaker open: {words}",
        CIRCUIT_BREAKER,
        cause="circuit breaker open",
        mend="correct what the message names: the image, the network or the registration",
        next_event="the probe machine becomes ready, gets a job or fails",
        variants={
            "boots": "circuit breaker of {about} open until a machine becomes ready: {count} consecutive "
            "machines did not become ready, the last one: {words}; {probe}",
            "exits": "circuit breaker of {about} open until a runner gets a job: {count} or more "
            "consecutive machines exited without taking a job, the last one: {words}; {probe}",
            "image": "circuit breaker of {about} open until its image is replaced: {words}; {probe}",
            "option": "circuit breaker of launch option {about} open: {words}; {probe}",
            "option_failed": "circuit breaker of launch option {about} open: {words}; a probe failed",
        },
    )
    NO_OFFERING = Entry(
        "no_offering",
        "no provider of the SKU's launch options (`on`) has an offering now",
        LAUNCHES_REFUSED,
        cause="provider not read",
        mend="run `autoscaler doctor`: it says why the provider cannot be read",
        next_event="the controller can read a provider of the SKU; it tries every minute",
    )
    REGISTRATION_ON_HOLD = Entry(
        "registration_on_hold",
        "registering runners in {about} is on hold: {words}",
        REGISTRATIONS_REFUSED,
        cause="registrations refused",
        mend="look up GitHub's answer in docs/github.md: usually the App lacks the permission Self-hosted "
        "runners, or the runner group's name is wrong",
        next_event="the controller tries to register a runner at GitHub again",
    )
    GITHUB_SECONDARY_LIMIT = Entry(
        "github_secondary_limit",
        _LIMITED,
        REGISTRATIONS_REFUSED,
        cause="GitHub's secondary rate limit",
        next_event="GitHub's secondary rate limit ends",
        mend="wait for its end; find what else sends many requests as this App, or lower "
        "github.registrations",
    )
    GITHUB_PRIMARY_LIMIT = Entry(
        "github_primary_limit",
        _LIMITED,
        REGISTRATIONS_REFUSED,
        cause="GitHub's primary rate limit",
        next_event="GitHub's primary rate limit begins anew, each hour",
        mend="wait for its reset, or add an App to github.apps: each has a limit of its own",
    )
    JOB_UNCONFIRMED = Entry(
        "job_unconfirmed",
        "asking GitHub for the current state of the job",
        LISTS_STALE,
        cause="GitHub does not confirm",
        fires=False,
        threshold=_ANSWERED_BY,
        next_event="the controller asks GitHub for the job's state",
    )
    NOT_ASSIGNED = Entry(
        "not_assigned",
        _PASSED_OVER + "check that {where} admits it: " + _SETTINGS + _RETRYING,
        REGISTRATIONS_REFUSED,
        cause="not assigned by GitHub",
        next_event="the controller tries another machine for the job, or for an older one of its "
        "repository",
        variants={
            "repository": _PASSED_OVER + "see Settings > Actions of {where}" + _RETRYING,
            "refused": "{where} does not admit {names}: see " + _SETTINGS + "; the group is read "
            "every minute",
        },
    )
    RUN_UNKNOWN = Entry(
        "run_unknown",
        "access depends on the job's run, which GitHub has not shown yet; if this stays, "
        "run_not_read in the log has GitHub's answer",
        LISTS_STALE,
        cause="GitHub does not show the run",
        fires=False,
        threshold=_ANSWERED_BY,
        next_event="the controller asks GitHub for the job's run",
    )
    FORK_NOT_ALLOWED = Entry(
        "fork_not_allowed",
        "the job's run comes from a fork, and access.forks is false",
        JOBS_NOT_SERVED,
        cause="jobs outside access",
        mend=_MEND_ACCESS,
        threshold=NOT_SERVED,
        next_event=_GITHUB_FAILS_IT,
    )
    PUBLIC_REPOSITORY_NOT_ALLOWED = Entry(
        "public_repository_not_allowed",
        "the job's repository is public, and access.public_repositories is false",
        JOBS_NOT_SERVED,
        cause="jobs outside access",
        mend=_MEND_ACCESS,
        threshold=NOT_SERVED,
        next_event=_GITHUB_FAILS_IT,
    )
    BRANCH_NOT_ALLOWED = Entry(
        "branch_not_allowed",
        "the job's run is on no branch of access.branches",
        JOBS_NOT_SERVED,
        cause="jobs outside access",
        mend=_MEND_ACCESS,
        threshold=NOT_SERVED,
        next_event=_GITHUB_FAILS_IT,
    )


class Unmatched(Code):
    """Why no SKU serves a job."""

    LABELS = Entry(
        "labels",
        "no SKU has all of the job's labels",
        JOBS_NOT_SERVED,
        cause="jobs without a SKU",
        mend=_MEND_LABELS,
        threshold=NOT_SERVED,
        variants={"named": "no SKU has all of the labels {labels}{words}"},
    )
    NAMES_NO_SKU = Entry(
        "names_no_sku",
        "SKUs have all of the job's labels, but the labels name no SKU",
        JOBS_NOT_SERVED,
        cause="jobs without a SKU",
        mend=_MEND_LABELS,
        threshold=NOT_SERVED,
        variants={
            "named": "the labels {labels} name no SKU; add one, or set unlabelled: true for one"
        },
    )
    ACCESS = Entry(
        "access",
        "the access of the SKUs with the job's labels does not admit its repository",
        JOBS_NOT_SERVED,
        cause="jobs outside access",
        mend=_MEND_ACCESS,
        threshold=NOT_SERVED,
        variants={"named": "no SKU with these labels admits {about} (see access)"},
    )


class FaultCode(Code):
    """What is wrong with the fleet, besides the codes of waiting jobs. Only metrics show the first 14."""

    WEBHOOKS_SILENT = Entry(
        "webhooks_silent",
        "a job started or ended {ago} ago, and no webhook was accepted for {silent}",
        _page("WebhooksSilent"),
        mend="see Advanced > Recent deliveries of the App at GitHub; correct the App's webhook URL, or let "
        "GitHub reach it",
        threshold=Threshold(300.0, within=HALF_HOUR),
    )
    STORE_FAILS = Entry(
        "store_fails",
        "a webhook was not stored {ago} ago, because {why}; GitHub got 503 for it",
        _page("StoreFails"),
        mend="free space on the store's disk, or move the store to a faster local one",
        threshold=Threshold(within=HALF_HOUR),
    )
    STORE_DISK_LOW = Entry(
        "store_disk_low",
        "the store's disk has {free} of {size} left; the controller stops when it is full. Free "
        "space on it, or make it larger",
        _page("StoreDiskLow"),
        cause="the store's disk fills up",
        threshold=Threshold(share=0.1),
    )
    STORE_SLOW = Entry(
        "store_slow",
        "{slow:,} of {writes} to the store ({operation}) took more than {above:g} s in the last "
        "{within}",
        _ticket("StoreSlow"),
        # A disk that pauses delays one webhook by a second, and GitHub waits for ten. One a minute is more.
        threshold=Threshold(0.5, share=0.01, within=300.0, count=5),
    )
    HEALTH_CHECKS_FAIL = Entry(
        "health_checks_fail",
        "{above:g} machines or more of image {image} failed their health check {check} within "
        "{within}",
        _page("HealthChecksFail"),
        mend=_MEND_IMAGE,
        threshold=Threshold(3, within=HALF_HOUR),
    )
    RUNNER_VERSION_REFUSED = Entry(
        "runner_version_refused",
        "GitHub refuses the version of actions/runner in its image",
        _page("RunnerVersionRefused"),
        mend=_MEND_RUNNER,
        threshold=Threshold(within=HALF_HOUR),
    )
    RUNNER_VERSION_EXPIRES = Entry(
        "runner_version_expires",
        "GitHub will give no more jobs to actions/runner {version} of its image in {time}",
        _ticket("RunnerVersionExpires"),
        mend=_MEND_RUNNER,
        threshold=Threshold(604800.0),
        variants={
            "over": "GitHub has given no jobs to actions/runner {version} of its image for {time}",
        },
    )
    JOB_OUTSIDE_ACCESS = Entry(
        "job_outside_access",
        "GitHub gave its machines to jobs that access does not admit ({reasons}); the job hook "
        "refuses them on the machine",
        _ticket("JobsOutsideAccess"),
        mend="admit no other repositories to the runner group than access does, or admit these with access",
        threshold=Threshold(within=HALF_HOUR),
    )
    LEAK_SUSPECTED = Entry(
        "leak_suspected",
        "for {time}, more machines have been assigned or exited than jobs are in progress; now "
        "{excess:,} more",
        LEAK,
        threshold=Threshold(5, share=0.1, within=600.0),
    )
    GITHUB_BUDGET_LOW = Entry(
        "github_budget_low",
        "{remaining:,} of {limit:,} requests ({resource}) are left this hour",
        _ticket("GitHubBudgetLow"),
        cause="GitHub budget low",
        mend="wait for its reset, within the hour, or add an App to github.apps: each has a limit of its own",
        threshold=Threshold(share=0.1),
    )
    GITHUB_LISTS_STALE = Entry(
        "github_lists_stale",
        "the oldest data from GitHub's lists is from {time} ago",
        LISTS_STALE,
        cause="GitHub's lists are stale",
        threshold=Threshold(600.0),
    )
    RUNNER_GROUP_TOO_WIDE = Entry(
        "runner_group_too_wide",
        "the runner group admits more than access does: {reason}",
        _ticket("RunnerGroupTooWide"),
    )
    CLOCK_SKEWED = Entry(
        "clock_skewed",
        "this host's clock is {time} {side} GitHub's",
        _ticket("ClockSkewed"),
        cause="clock is wrong",
        threshold=Threshold(30.0),
    )
    CONTROLLER_SLOW = Entry(
        "controller_slow",
        "webhooks and machines waited up to {lag:.1f} s for the controller",
        _ticket("ControllerSlow"),
        mend="give the controller's host a free CPU: find what else runs there",
        threshold=Threshold(1.0),
    )
    PROVIDER_NOT_LISTED = Entry(
        "provider_not_listed",
        "its machines were not listed since the controller's start, so nothing is launched there; "
        "the log has the reason: provider_not_opened or list_incomplete",
        LAUNCHES_REFUSED,
        fires=False,
        threshold=Threshold(60.0),
    )
    MACHINES_NOT_TERMINATING = Entry(
        "machines_not_terminating",
        "{machines}: still at the provider after three or more requests to terminate. See autoscaler "
        "unverified",
        _ticket("MachinesDoNotTerminate"),
        cause="machines do not terminate",
        mend="find them with `autoscaler unverified`, and terminate them at the provider",
    )
    MACHINES_SILENT = Entry(
        "machines_silent",
        "{machines}: assigned, and no heartbeat for {time}: {named}. The controller asks GitHub every {time}, "
        "and terminates each machine after two answers that its work is over",
        LEAK,
        cause="silent machines",
        fires=False,
        mend="see the machine's console output at its provider; `autoscaler terminate MACHINE` does not wait "
        "for GitHub",
    )
    MACHINES_UNVERIFIED = Entry(
        "machines_unverified",
        "{machines}: may be running a job: the store does not say. See autoscaler unverified",
        UNVERIFIED,
        cause="unverified machines",
    )
    MACHINES_FOREIGN = Entry(
        "machines_foreign",
        "{machines}: of another installation of this fleet. See autoscaler unverified",
        UNVERIFIED,
        cause="machines of another installation",
    )
    NODE_AVOIDED = Entry(
        "node_avoided",
        "{nodes} of {provider} avoided: {named}",
        _ticket("NodeAvoided"),
        cause="faulty node avoided",
    )
    JOB_WAITS_FOR_HOURS = Entry(
        "job_waits_for_hours",
        "a job has waited for {time}: {reasons}",
        _page("JobWaitsForHours"),
        cause="waits for hours",
        threshold=Threshold(7200.0),
    )
    JOBS_START_LATE = Entry(
        "jobs_start_late",
        "{late} of {started} waited for longer than {limit} in the last hour{waiting}",
        _page("JobsStartLate"),
    )
    OPTION_CIRCUIT_OPEN = Entry(
        "option_circuit_open",
        "circuit breaker of launch option {provider} open: {words}",
        _ticket(CIRCUIT_BREAKER.name),
        cause="circuit breaker open",
    )
    DRAINED = Entry("drained", cause="drained by an operator", variants=_REMINDER)
    QUARANTINED = Entry("quarantined", cause="quarantined by an operator", variants=_REMINDER)


GITHUB_DECIDES = frozenset(
    {
        WaitCode.JOB_UNCONFIRMED,
        WaitCode.NOT_ASSIGNED,
        WaitCode.RUN_UNKNOWN,
        WaitCode.FORK_NOT_ALLOWED,
        WaitCode.PUBLIC_REPOSITORY_NOT_ALLOWED,
        WaitCode.BRANCH_NOT_ALLOWED,
    }
)
"""Each concerns a job that stands in no line yet."""

DECIDED_BY_ACCESS = frozenset(
    {
        WaitCode.FORK_NOT_ALLOWED,
        WaitCode.PUBLIC_REPOSITORY_NOT_ALLOWED,
        WaitCode.BRANCH_NOT_ALLOWED,
    }
)
"""fleet.yaml refuses these jobs."""

CODES: Mapping[str, Code] = {
    code.value: code for codes in (WaitCode, Unmatched, FaultCode) for code in codes
}


def cause_of(code: str) -> str:
    """Return a few words for a code."""
    known = CODES.get(code)
    return (known.entry.cause if known is not None else "") or code.replace("_", " ")


def that_fire(runbook: Runbook) -> Iterable[WaitCode]:
    """Return the codes of waiting jobs for which the alert of a runbook fires."""
    return (code for code in WaitCode if code.entry.runbook == runbook and code.entry.fires)
