"""The metrics, and what is wrong according to them: for operators who look at the fleet without Prometheus.

The thresholds are those of `alert_rules`, without the delays after which an alert fires.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from autoscaler.controller.ports.telemetry import FleetCounts
from autoscaler.model.accounting import MachineUse
from autoscaler.model.deliveries import DeliveryAnswer
from autoscaler.model.identifiers import Instant, ProviderName, Seconds, SkuName
from autoscaler.model.machines.machine import ExitReason, MachineState
from autoscaler.model.wording import counted
from autoscaler.observability.alert_rules import WEBHOOK_LATE_BY
from autoscaler.observability.alerting import DAY
from autoscaler.observability.metrics import PrometheusTelemetry
from autoscaler.views.cost import Spent
from autoscaler.views.status import Trouble
from autoscaler.views.times import duration

WINDOW: Seconds = 1800.0
"""How long a failure counts, and how long webhooks may be silent although a job started."""

FAILED_CHECKS = 3
VERSION_NOTICE: Seconds = 7 * DAY
LOW_BUDGET = 0.1
BUDGET_RESETS_AFTER: Seconds = 3600.0
STALE_AFTER: Seconds = 600.0
SLOW_FROM: Seconds = 1.0
CLOCK_TOLERANCE: Seconds = 30.0

SLOW_WRITE: Seconds = 0.5
SLOW_WRITES = 0.01
"""The share of writes to the store that may be slow."""

WRITES_WITHIN: Seconds = 300.0
WRITES_STEP: Seconds = 30.0

EXCESS_MACHINES = 5
EXCESS_SHARE = 0.1
EXCESS_LASTS: Seconds = 600.0
"""How long machines may outnumber their jobs: a runner that gets no job is released after five minutes
(`PASSED_OVER_AFTER`, `RELEASED_AFTER`), and its machine then powers off within two."""

_ARRIVED = frozenset({DeliveryAnswer.ACCEPTED, DeliveryAnswer.DUPLICATE, DeliveryAnswer.IGNORED})
_NOT_STORED = {
    DeliveryAnswer.STORE_FAILED: "the store failed",
    DeliveryAnswer.STORE_STALLED: "the store ended no write for some seconds",
    DeliveryAnswer.SHED: "too many webhooks arrived at once",
}
"""Why a webhook with this outcome was not stored."""
_FOR_A_JOB = frozenset({MachineState.ASSIGNED, MachineState.EXITED})


@dataclass(slots=True)
class _Writes:
    """The writes to the store in some seconds, and how many of them were slow."""

    since: Instant
    count: int = 0
    slow: int = 0


class WatchedTelemetry(PrometheusTelemetry):
    """A `Telemetry` that also remembers what `troubles` and `spent` need: a few values for each label."""

    def __init__(
        self,
        skus: Iterable[SkuName],
        providers: Iterable[ProviderName],
        version: str,
        repositories: Iterable[str] = (),
        *,
        now: Callable[[], Instant],
    ) -> None:
        """`now` returns the time of the controller's clock. The others are as for `PrometheusTelemetry`."""
        super().__init__(skus, providers, version, repositories)
        self._now = now
        self._arrived_at = now()
        self._not_stored: tuple[Instant, DeliveryAnswer] | None = None
        self._missed_at: Instant | None = None
        """When the first job since the last webhook started."""
        self._excess = 0
        self._excess_since: Instant | None = None
        self._writes: dict[str, deque[_Writes]] = {}
        self._lag: Seconds = 0.0
        self._checks: dict[tuple[str, str, str], deque[Instant]] = {}
        self._refused_at: dict[str, Instant] = {}
        self._circuits_open: frozenset[str] = frozenset()
        self._outside: dict[str, dict[str, Instant]] = {}
        self._deadlines: dict[str, tuple[str, Instant]] = {}
        self._budgets: dict[tuple[str, str, str], tuple[int, int, Instant]] = {}
        self._clock_ahead: Seconds = 0.0
        self._stale: dict[str, Seconds] = {}
        self._wide_groups: dict[tuple[str, str], bool] = {}
        self._spent: dict[tuple[str, MachineUse], float] = {}

    def render(self) -> Iterator[bytes]:
        """See `PrometheusTelemetry.render`."""
        self._drop_reset_budgets()
        return super().render()

    def troubles(self) -> tuple[Trouble, ...]:
        """Return what is wrong now, the most urgent first."""
        self._drop_reset_budgets()
        return (*self._of_deliveries(), *self._of_machines(), *self._of_github(), *self._of_loop())

    def spent(self) -> Spent:
        """Return the dollars since the start by SKU and use, of the time that is over."""
        return dict(self._spent)

    def machine_used(
        self, sku: SkuName, use: MachineUse, seconds: Seconds, dollars: float, repository: str
    ) -> None:
        """See `Telemetry.machine_used`."""
        super().machine_used(sku, use, seconds, dollars, repository)
        if math.isfinite(dollars):
            key = self._sku.value(sku), use
            self._spent[key] = self._spent.get(key, 0.0) + max(0.0, dollars)

    def delivery(self, answer: DeliveryAnswer) -> None:
        """See `Telemetry.delivery`."""
        super().delivery(answer)
        if answer in _ARRIVED:
            self._arrived_at, self._missed_at = self._now(), None
        elif answer in _NOT_STORED:
            self._not_stored = self._now(), answer

    def job_started(self, sku: SkuName, repository: str, waited: Seconds) -> None:
        """See `Telemetry.job_started`."""
        super().job_started(sku, repository, waited)
        # A webhook that was accepted a moment ago may have reported this start.
        if self._missed_at is None and self._now() - self._arrived_at >= WEBHOOK_LATE_BY:
            self._missed_at = self._now()

    def fleet(self, counts: FleetCounts) -> None:
        """See `Telemetry.fleet`."""
        super().fleet(counts)
        self._circuits_open = frozenset(map(self._sku.value, counts.circuits_open))
        running = sum(counts.jobs_in_progress.values())
        machines = sum(
            count for (_, state), count in counts.machines.items() if state in _FOR_A_JOB
        )
        self._excess = machines - running
        if self._excess <= EXCESS_MACHINES + EXCESS_SHARE * running:
            self._excess_since = None
        elif self._excess_since is None:
            self._excess_since = self._now()

    def health_check_failed(self, sku: SkuName, check: str, image: str) -> None:
        """See `Telemetry.health_check_failed`."""
        super().health_check_failed(sku, check, image)
        key = self._failed_check(sku, check, image)
        self._checks.setdefault(key, deque(maxlen=FAILED_CHECKS)).append(self._now())

    def runner_exited(self, sku: SkuName, reason: ExitReason) -> None:
        """See `Telemetry.runner_exited`."""
        super().runner_exited(sku, reason)
        if reason is ExitReason.VERSION_DEPRECATED:
            self._refused_at[self._sku.value(sku)] = self._now()

    def job_outside_access(self, sku: SkuName, reason: str) -> None:
        """See `Telemetry.job_outside_access`."""
        super().job_outside_access(sku, reason)
        self._outside.setdefault(self._sku.value(sku), {})[self._access.value(reason)] = self._now()

    def runner_deadline(self, sku: SkuName, version: str, at: Instant | None) -> None:
        """See `Telemetry.runner_deadline`."""
        super().runner_deadline(sku, version, at)
        name = self._sku.value(sku)
        if at is None:
            self._deadlines.pop(name, None)
        else:
            self._deadlines[name] = version, at

    def github_budget(
        self, app: int, account: str, resource: str, remaining: int | None, limit: int | None
    ) -> None:
        """See `Telemetry.github_budget`."""
        super().github_budget(app, account, resource, remaining, limit)
        if remaining is not None and limit:
            bucket = (
                self._app.value(str(app)),
                self._account.value(account),
                self._resource.value(resource),
            )
            self._budgets[bucket] = (remaining, limit, self._now())

    def github_clock(self, ahead: Seconds) -> None:
        """See `Telemetry.github_clock`."""
        super().github_clock(ahead)
        self._clock_ahead = ahead

    def github_staleness(self, account: str, seconds: Seconds) -> None:
        """See `Telemetry.github_staleness`."""
        super().github_staleness(account, seconds)
        self._stale[self._account.value(account)] = seconds

    def runner_group(self, account: str, group: str, reason: str, too_wide: bool) -> None:
        """See `Telemetry.runner_group`."""
        super().runner_group(account, group, reason, too_wide)
        name = f"{self._account.value(account)}/{self._group.value(group)}"
        self._wide_groups[name, self._wide.value(reason)] = too_wide

    def event_loop_lag(self, longest: Seconds) -> None:
        """See `Telemetry.event_loop_lag`."""
        super().event_loop_lag(longest)
        self._lag = longest

    def store_write(self, operation: str, duration: Seconds) -> None:
        """See `Telemetry.store_write`."""
        super().store_write(operation, duration)
        steps = deque[_Writes](maxlen=int(WRITES_WITHIN / WRITES_STEP))
        steps = self._writes.setdefault(self._write.value(operation), steps)
        now = self._now()
        if not steps or not 0.0 <= now - steps[-1].since < WRITES_STEP:
            steps.append(_Writes(now))
        steps[-1].count += 1
        steps[-1].slow += duration > SLOW_WRITE

    def _drop_reset_budgets(self) -> None:
        """Remove the series of buckets that GitHub has reset since their last answer."""
        now = self._now()
        for bucket, (_, _, at) in tuple(self._budgets.items()):
            if now - at >= BUDGET_RESETS_AFTER:
                del self._budgets[bucket]
                self._calls.github_remaining.remove(*bucket)
                self._calls.github_limit.remove(*bucket)

    def _of_deliveries(self) -> Iterator[Trouble]:
        now = self._now()
        if self._not_stored is not None and now - self._not_stored[0] < WINDOW:
            ago, answer = duration(now - self._not_stored[0]), self._not_stored[1]
            why = f"{_NOT_STORED[answer]} ({answer})"
            message = f"a webhook was not stored {ago} ago, because {why}; GitHub got 503 for it"
            yield Trouble("store_fails", "", message)
        silent = now - self._arrived_at
        if self._missed_at is None or silent < WINDOW:
            return
        if (missed := now - self._missed_at) >= WEBHOOK_LATE_BY:
            since, ago = duration(silent), duration(missed)
            message = f"a job started {ago} ago, and no webhook was accepted for {since}"
            yield Trouble("webhooks_silent", "", message)

    def _of_machines(self) -> Iterator[Trouble]:
        now = self._now()
        for (sku, check, image), times in sorted(self._checks.items()):
            if len(times) == FAILED_CHECKS and now - times[0] < WINDOW:
                message = (
                    f"{FAILED_CHECKS} machines or more of image {image} failed their health check "
                    f"{check} within {duration(WINDOW)}"
                )
                yield Trouble("health_checks_fail", sku, message)
        for sku, at in sorted(self._refused_at.items()):
            if now - at < WINDOW and sku in self._circuits_open:
                message = "GitHub refuses the version of actions/runner in its image"
                yield Trouble("runner_version_refused", sku, message)
        for sku, reasons in sorted(self._outside.items()):
            recent = sorted(one for one, at in reasons.items() if now - at < WINDOW)
            if recent:
                message = (
                    f"GitHub gave its machines to jobs that access does not admit ({', '.join(recent)}); "
                    "the job hook refuses them on the machine"
                )
                yield Trouble("job_outside_access", sku, message)
        for sku, (version, at) in sorted(self._deadlines.items()):
            if at - now < VERSION_NOTICE:
                runner = f"jobs to actions/runner {version} of its image"
                message = (
                    f"GitHub will give no more {runner} in {duration(at - now)}"
                    if at > now
                    else f"GitHub has given no {runner} for {duration(now - at)}"
                )
                yield Trouble("runner_version_expires", sku, message)
        if self._excess_since is not None and now - self._excess_since >= EXCESS_LASTS:
            message = (
                f"for {duration(now - self._excess_since)}, more machines have been assigned or exited than "
                f"jobs are in progress; now {self._excess:,} more"
            )
            yield Trouble("leak_suspected", "", message)

    def _of_github(self) -> Iterator[Trouble]:
        for (app, account, resource), (remaining, limit, _) in sorted(self._budgets.items()):
            if remaining < LOW_BUDGET * limit:
                where = f"App {app}{f', {account}' if account else ''}"
                message = f"{remaining:,} of {limit:,} requests ({resource}) are left this hour"
                yield Trouble("github_budget_low", where, message)
        for account, seconds in sorted(self._stale.items()):
            if seconds > STALE_AFTER:
                message = f"the oldest data from GitHub's lists is from {duration(seconds)} ago"
                yield Trouble("github_lists_stale", account, message)
        for (group, reason), wide in sorted(self._wide_groups.items()):
            if wide:
                message = (
                    f"the runner group admits more than access does: {reason.replace('_', ' ')}"
                )
                yield Trouble("runner_group_too_wide", group, message)

    def _of_loop(self) -> Iterator[Trouble]:
        if abs(self._clock_ahead) > CLOCK_TOLERANCE:
            side = "ahead of" if self._clock_ahead > 0 else "behind"
            message = f"this host's clock is {duration(abs(self._clock_ahead))} {side} GitHub's"
            yield Trouble("clock_skewed", "", message)
        if self._lag > SLOW_FROM:
            message = f"webhooks and machines waited up to {self._lag:.1f} s for the controller"
            yield Trouble("controller_slow", "", message)
        now = self._now()
        for operation, steps in sorted(self._writes.items()):
            recent = [step for step in steps if now - step.since < WRITES_WITHIN]
            slow, writes = sum(one.slow for one in recent), sum(one.count for one in recent)
            if slow > SLOW_WRITES * writes:
                message = (
                    f"{slow:,} of {counted(writes, 'write')} to the store ({operation}) took more than "
                    f"{SLOW_WRITE:g} s in the last {duration(WRITES_WITHIN)}"
                )
                yield Trouble("store_slow", "", message)
