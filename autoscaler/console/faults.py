"""What is wrong with the fleet, for the first lines of the console: each fault with its runbook."""

from dataclasses import dataclass

from autoscaler.views.overview import Overview
from autoscaler.views.starts import Starts, total
from autoscaler.views.status import Trouble

RUNBOOK_OF = {
    "max_machines": "LimitReached",
    "fleet_machines": "LimitReached",
    "fleet_dollars": "LimitReached",
    "fair_share": "LimitReached",
    "quota": "LimitReached",
    "launch_rate": "LimitReached",
    "registration_rate": "LimitReached",
    "throttled": "LimitReached",
    "capacity": "OutOfCapacity",
    "unsupported": "OutOfCapacity",
    "configuration": "LaunchesRefused",
    "unknown": "LaunchesRefused",
    "no_offering": "LaunchesRefused",
    "provider_not_listed": "LaunchesRefused",
    "registration_on_hold": "RegistrationsRefused",
    "not_assigned": "RegistrationsRefused",
    "circuit_open": "CircuitBreakerOpen",
    "boot_deadline": "MachinesNotReady",
    "health_check": "MachinesNotReady",
    "health_checks_fail": "HealthChecksFail",
    "runner_version_refused": "RunnerVersionRefused",
    "runner_version_expires": "RunnerVersionExpires",
    "job_unconfirmed": "GitHubListsStale",
    "run_unknown": "GitHubListsStale",
    "github_lists_stale": "GitHubListsStale",
    "github_budget_low": "GitHubBudgetLow",
    "webhooks_silent": "WebhooksSilent",
    "store_fails": "StoreFails",
    "store_slow": "StoreSlow",
    "controller_slow": "ControllerSlow",
    "clock_skewed": "ClockSkewed",
    "leak_suspected": "LeakSuspected",
    "runner_group_too_wide": "RunnerGroupTooWide",
    "job_outside_access": "JobsOutsideAccess",
    "machines_unverified": "MachinesUnverified",
    "machines_foreign": "MachinesUnverified",
    "machines_not_terminating": "MachinesDoNotTerminate",
    "node_avoided": "NodeAvoided",
    "job_waits_for_hours": "JobWaitsForHours",
    "jobs_start_late": "JobsStartLate",
}
"""The page of docs/runbooks/ for each code of a fault."""

CAUSE_OF = {
    "max_machines": "limit reached",
    "fleet_machines": "limit reached",
    "fleet_dollars": "limit reached",
    "fair_share": "fair share used up",
    "quota": "quota used up",
    "capacity": "out of capacity",
    "unsupported": "not offered in this zone",
    "configuration": "launches refused",
    "unknown": "launches fail",
    "no_offering": "provider not read",
    "provider_not_listed": "provider not listed",
    "throttled": "throttled",
    "registration_on_hold": "registrations refused",
    "registration_rate": "registration limit",
    "paused": "paused by an operator",
    "drained": "drained by an operator",
    "quarantined": "quarantined by an operator",
    "not_assigned": "not assigned by GitHub",
    "circuit_open": "circuit breaker open",
    "boot_deadline": "machines do not boot",
    "health_check": "health checks fail",
    "health_checks_fail": "health checks fail",
    "runner_version_refused": "runner version refused",
    "runner_version_expires": "runner version expires",
    "job_unconfirmed": "GitHub does not confirm",
    "run_unknown": "GitHub does not show the run",
    "github_lists_stale": "GitHub's lists are stale",
    "github_budget_low": "GitHub budget low",
    "webhooks_silent": "webhooks silent",
    "store_fails": "store fails",
    "store_slow": "store slow",
    "controller_slow": "controller slow",
    "clock_skewed": "clock is wrong",
    "leak_suspected": "leak suspected",
    "runner_group_too_wide": "runner group too wide",
    "job_outside_access": "job outside access",
    "machines_unverified": "unverified machines",
    "machines_foreign": "machines of another installation",
    "machines_not_terminating": "machines do not terminate",
    "node_avoided": "faulty node avoided",
    "job_waits_for_hours": "waits for hours",
    "jobs_start_late": "jobs start late",
}
"""A few words for each code."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `sku` is the SKU that it concerns, or empty; `about` is the SKU, provider or account."""

    code: str
    about: str
    sku: str
    cause: str
    message: str
    runbook: str


def faults(overview: Overview) -> tuple[Fault, ...]:
    """Return what is wrong, in the order of the fleet's status."""
    names = {sku.sku for sku in overview.status.skus}
    return tuple(_fault(trouble, names) for trouble in overview.status.troubles)


def cause_of(code: str) -> str:
    """Return a few words for a code."""
    return CAUSE_OF.get(code, code.replace("_", " "))


def _fault(trouble: Trouble, skus: set[str]) -> Fault:
    return Fault(
        code=trouble.code,
        about=trouble.about,
        sku=trouble.about if trouble.about in skus else "",
        cause=cause_of(trouble.code),
        message=trouble.message,
        runbook=RUNBOOK_OF.get(trouble.code, ""),
    )


def verdict(overview: Overview, found: tuple[Fault, ...]) -> str:
    """Return one sentence: whether the fleet is fine, and if not, what is wrong first."""
    status = overview.status
    if found:
        first = found[0]
        where = f"{first.about}: " if first.about else ""
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        return f"{where}{first.cause}{more}"
    if status.waiting:
        jobs = "1 job waits" if status.waiting == 1 else f"{status.waiting:,} jobs wait"
        return f"Fine: {jobs}, and machines are on their way"
    return "Fine: no job waits for a machine"


def objective(overview: Overview) -> tuple[Starts, Starts]:
    """Return the starts of all SKUs in the last hour and day."""
    return total(overview.hour), total(overview.day)
