"""Faults that only the metrics show, with the thresholds of the alerts."""

from collections.abc import Callable

import pytest

from autoscaler.controller.ports.telemetry import FleetCounts
from autoscaler.model.accounting import MachineUse
from autoscaler.model.deliveries import DeliveryAnswer
from autoscaler.model.identifiers import ProviderName, SkuName
from autoscaler.model.machines.machine import ExitReason, MachineState
from autoscaler.model.reasons.table import FaultCode
from autoscaler.model.wait_objectives import RECOVERS_AFTER
from autoscaler.observability.alert_rules import AlertParameters, alert_rules
from autoscaler.observability.alerting import span
from autoscaler.observability.metrics import PrometheusTelemetry
from autoscaler.observability.watched import BUDGET_RESETS_AFTER

SILENT, LEAK, SLOW = (
    code.entry.threshold
    for code in (FaultCode.WEBHOOKS_SILENT, FaultCode.LEAK_SUSPECTED, FaultCode.STORE_SLOW)
)
WINDOW, WEBHOOK_LATE_BY = SILENT.within, SILENT.above
EXCESS_LASTS, WRITES_WITHIN = LEAK.within, SLOW.within
VERSION_NOTICE = FaultCode.RUNNER_VERSION_EXPIRES.entry.threshold.above

GPU = SkuName("gpu")
BAD, GOOD = "ami-0bad", "ami-0a"


class Watch:
    """Telemetry with a clock that a test moves."""

    def __init__(self, *, webhooks: bool = True) -> None:
        self.now = 1000.0
        self.telemetry = PrometheusTelemetry(
            [GPU], [ProviderName("east")], "1", now=lambda: self.now, webhooks=webhooks
        )

    def codes(self) -> list[str]:
        return [one.code for one in self.telemetry.faults()]


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_a_quiet_controller_has_no_faults(watch: Watch) -> None:
    assert watch.codes() == []
    watch.now += 10 * WINDOW
    assert watch.codes() == []


def test_webhooks_are_silent_if_a_job_started_without_one(watch: Watch) -> None:
    watch.now += WINDOW - WEBHOOK_LATE_BY
    watch.telemetry.job_started(GPU, "acme/widgets", 60.0)
    watch.now += WEBHOOK_LATE_BY - 1.0
    assert watch.codes() == []
    watch.now += 1.0
    (trouble,) = watch.telemetry.faults()
    assert trouble.code == "webhooks_silent"
    assert trouble.message == (
        "a job started or ended 5m00s ago, and no webhook was accepted for 30m00s"
    )
    # More starts, and a test of GitHub's, change nothing. The next webhook ends the fault.
    watch.telemetry.job_started(GPU, "acme/widgets", 60.0)
    watch.telemetry.delivery(DeliveryAnswer.PING)
    assert watch.codes() == ["webhooks_silent"]
    watch.telemetry.delivery(DeliveryAnswer.DUPLICATE)
    watch.now += 10 * WINDOW
    assert watch.codes() == []


def test_webhooks_are_silent_if_only_the_end_of_a_machine_shows_that_its_job_ended(
    watch: Watch,
) -> None:
    """GitHub's rate limit stops the lists meanwhile, so no job is seen to start."""
    watch.now += WINDOW
    for use in (MachineUse.BOOT, MachineUse.READY, MachineUse.END, MachineUse.FAILED_LAUNCH):
        watch.telemetry.machine_used(GPU, use, 60.0, 0.1, "acme/widgets")
    watch.now += WEBHOOK_LATE_BY
    assert watch.codes() == []
    watch.telemetry.machine_used(GPU, MachineUse.JOB, 60.0, 0.1, "acme/widgets")
    watch.now += WEBHOOK_LATE_BY
    assert watch.codes() == ["webhooks_silent"]
    watch.telemetry.delivery(DeliveryAnswer.ACCEPTED)
    assert watch.codes() == []


def test_a_fleet_without_webhooks_misses_none() -> None:
    """Neither the fault nor the alert, which needs a series of deliveries that existed half an hour ago."""
    watch = Watch(webhooks=False)
    watch.now += WINDOW
    watch.telemetry.job_started(GPU, "acme/widgets", 60.0)
    watch.now += 10 * WINDOW
    assert watch.codes() == []
    assert "autoscaler_deliveries_total{" not in b"".join(watch.telemetry.render()).decode()


def test_webhooks_are_not_silent_while_one_job_runs_for_hours(watch: Watch) -> None:
    watch.telemetry.delivery(DeliveryAnswer.ACCEPTED)
    watch.now += 1.0
    watch.telemetry.job_started(GPU, "acme/widgets", 60.0)
    watch.telemetry.fleet(FleetCounts(jobs_in_progress={GPU: 1}))
    watch.now += 4 * WINDOW
    watch.telemetry.fleet(FleetCounts(jobs_in_progress={GPU: 1}))
    assert watch.codes() == []
    # A list shows the next start before its webhook arrives.
    watch.telemetry.job_started(GPU, "acme/widgets", 60.0)
    watch.now += WEBHOOK_LATE_BY - 1.0
    assert watch.codes() == []
    watch.telemetry.delivery(DeliveryAnswer.ACCEPTED)
    watch.now += 4 * WINDOW
    assert watch.codes() == []


def test_three_machines_of_an_image_that_fail_the_same_check_are_a_fault_of_the_sku(
    watch: Watch,
) -> None:
    for check, image in (
        ("gpu_count", BAD),
        ("gpu_count", BAD),
        ("disk", BAD),
        ("gpu_count", GOOD),
    ):
        watch.telemetry.health_check_failed(GPU, check, image)
    assert watch.codes() == []
    watch.telemetry.health_check_failed(GPU, "gpu_count", BAD)
    (trouble,) = watch.telemetry.faults()
    assert (trouble.code, trouble.about, trouble.skus) == ("health_checks_fail", BAD, ("gpu",))
    assert f"of image {BAD} failed their health check gpu_count" in trouble.message
    # The circuit breaker launches few machines now: without a start of the SKU, all of them still fail.
    watch.now += WINDOW
    assert watch.codes() == ["health_checks_fail"]
    watch.telemetry.job_started(GPU, "acme/widgets", 1.0)
    assert watch.codes() == []


def test_failed_health_checks_have_recovered_once_jobs_start(watch: Watch) -> None:
    for _ in range(3):
        watch.telemetry.health_check_failed(GPU, "gpu_count", BAD)
    failed_at = watch.now
    watch.now += RECOVERS_AFTER
    watch.telemetry.job_started(GPU, "acme/widgets", 1.0)
    (fault,) = watch.telemetry.faults()
    assert (fault.recovered_at, fault.is_page) == (failed_at, False)


def test_a_store_that_accepts_webhooks_again_has_recovered(watch: Watch) -> None:
    watch.telemetry.delivery(DeliveryAnswer.STORE_FAILED)
    (fault,) = watch.telemetry.faults()
    assert (fault.recovered_at, fault.is_page) == (None, True)
    watch.now += 5.0
    watch.telemetry.delivery(DeliveryAnswer.ACCEPTED)
    (fault,) = watch.telemetry.faults()
    assert (fault.recovered_at, fault.is_page) == (watch.now, False)


def test_jobs_outside_access_are_a_fault_for_half_an_hour(watch: Watch) -> None:
    watch.telemetry.job_outside_access(GPU, "fork")
    watch.now += WINDOW - 1.0
    watch.telemetry.job_outside_access(GPU, "branch")
    (trouble,) = watch.telemetry.faults()
    assert (trouble.code, trouble.about) == ("job_outside_access", "gpu")
    assert "access does not admit (branch, fork)" in trouble.message
    watch.now += 1.0
    (trouble,) = watch.telemetry.faults()
    assert "access does not admit (branch)" in trouble.message
    watch.now += WINDOW
    assert watch.codes() == []


def test_faults_of_half_an_hour_end(watch: Watch) -> None:
    watch.telemetry.runner_exited(GPU, ExitReason.EXITED)
    assert watch.codes() == []
    watch.telemetry.runner_exited(GPU, ExitReason.VERSION_DEPRECATED)
    watch.telemetry.delivery(DeliveryAnswer.STORE_FAILED)
    assert watch.codes() == ["store_fails"], "one machine said so, and no circuit breaker opened"
    watch.telemetry.fleet(FleetCounts(circuits_open=(GPU,)))
    assert watch.codes() == ["store_fails", "runner_version_refused"]
    watch.now += WINDOW
    assert watch.codes() == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (DeliveryAnswer.STORE_FAILED, "the store failed (store_failed)"),
        (DeliveryAnswer.STORE_STALLED, "ended no write for some seconds (store_stalled)"),
        (DeliveryAnswer.SHED, "too many webhooks arrived at once (shed)"),
    ],
)
def test_the_fault_says_why_a_webhook_was_not_stored(
    answer: DeliveryAnswer, why: str, watch: Watch
) -> None:
    watch.telemetry.delivery(answer)
    (trouble,) = watch.telemetry.faults()
    assert trouble.code == "store_fails"
    assert why in trouble.message


SET: dict[str, tuple[Callable[[PrometheusTelemetry, bool], None], str]] = {
    "budget": (
        lambda one, bad: one.github_budget(1, "acme", "core", 499 if bad else 500, 5000),
        "github_budget_low",
    ),
    "lists": (
        lambda one, bad: one.github_staleness("acme", 601.0 if bad else 600.0),
        "github_lists_stale",
    ),
    "group": (
        lambda one, bad: one.runner_group("acme", "gpu", "public_repositories", bad),
        "runner_group_too_wide",
    ),
    "version": (
        lambda one, bad: one.runner_deadline(
            GPU, "2.338.0", 1000.0 + VERSION_NOTICE - (1.0 if bad else 0.0)
        ),
        "runner_version_expires",
    ),
    "clock ahead": (lambda one, bad: one.github_clock(30.1 if bad else 30.0), "clock_skewed"),
    "clock behind": (lambda one, bad: one.github_clock(-30.1 if bad else -30.0), "clock_skewed"),
    "loop": (lambda one, bad: one.event_loop_lag(1.1 if bad else 1.0), "controller_slow"),
}


def test_a_runner_version_near_its_end_is_reported_before_and_after_it(watch: Watch) -> None:
    def said() -> list[str]:
        return [one.message for one in watch.telemetry.faults()]

    jobs = "jobs to actions/runner 2.338.0 of its image"
    watch.telemetry.runner_deadline(GPU, "2.338.0", watch.now + 86_400.0)
    assert said() == [f"GitHub will give no more {jobs} in 1d00h"]
    watch.now += 2 * 86_400.0
    assert said() == [f"GitHub has given no {jobs} for 1d00h"]
    watch.telemetry.runner_deadline(GPU, "2.339.0", None)
    assert said() == []


@pytest.mark.parametrize("name", SET)
def test_a_gauge_is_a_fault_while_it_is_beyond_its_threshold(watch: Watch, name: str) -> None:
    set_to, code = SET[name]
    set_to(watch.telemetry, False)
    assert watch.codes() == []
    set_to(watch.telemetry, True)
    assert watch.codes() == [code]
    set_to(watch.telemetry, False)
    assert watch.codes() == []


def fleet(assigned: int, exited: int, running: int) -> FleetCounts:
    machines = {(GPU, MachineState.ASSIGNED): assigned, (GPU, MachineState.EXITED): exited}
    return FleetCounts(
        machines={**machines, (GPU, MachineState.READY): 90}, jobs_in_progress={GPU: running}
    )


def test_machines_that_outnumber_their_jobs_for_long_are_a_suspected_leak(watch: Watch) -> None:
    # The bound is 5 + 0.1 * 20 machines more than jobs.
    watch.telemetry.fleet(fleet(20, 7, 20))
    watch.now += EXCESS_LASTS
    watch.telemetry.delivery(DeliveryAnswer.ACCEPTED)
    assert watch.codes() == []
    watch.telemetry.fleet(fleet(20, 8, 20))
    watch.now += EXCESS_LASTS - 1.0
    watch.telemetry.fleet(fleet(25, 9, 20))
    assert watch.codes() == []
    watch.now += 1.0
    (trouble,) = watch.telemetry.faults()
    assert (trouble.code, trouble.about) == ("leak_suspected", "")
    assert trouble.message == (
        "for 10m00s, more machines have been assigned or exited than jobs are in progress; now 14 more"
    )
    watch.telemetry.fleet(fleet(20, 0, 20))
    watch.telemetry.fleet(fleet(40, 0, 20))
    assert watch.codes() == []


def test_a_store_is_slow_while_more_than_one_of_100_writes_is(watch: Watch) -> None:
    for _ in range(494):
        watch.telemetry.store_write("commit", 0.01)
    watch.telemetry.store_write("commit", 0.5)
    for _ in range(5):
        watch.telemetry.store_write("commit", 0.6)
    assert watch.codes() == []
    watch.telemetry.store_write("commit", 2.0)
    (trouble,) = watch.telemetry.faults()
    assert (trouble.code, trouble.about) == ("store_slow", "")
    assert trouble.message == (
        "6 of 501 writes to the store (commit) took more than 0.5 s in the last 5m00s"
    )
    watch.now += WRITES_WITHIN - 1.0
    assert watch.codes() == ["store_slow"]
    watch.now += 1.0
    assert watch.codes() == []


def test_a_few_slow_writes_are_no_fault_however_large_their_share(watch: Watch) -> None:
    for _ in range(SLOW.count - 1):
        watch.telemetry.store_write("accept", 0.6)
        watch.telemetry.store_write("commit", 0.6)
    assert watch.codes() == []
    watch.telemetry.store_write("accept", 0.6)
    assert watch.codes() == ["store_slow"]


def test_slow_writes_of_the_last_five_minutes_count_and_earlier_ones_do_not(watch: Watch) -> None:
    for _ in range(40):
        watch.telemetry.store_write("commit", 0.6)
        watch.now += 10.0
    (trouble,) = watch.telemetry.faults()
    slow, _, rest = trouble.message.partition(" of ")
    assert slow == rest.partition(" writes")[0]
    assert 27 <= int(slow) <= 30
    for _ in range(31):
        watch.now += 10.0
        watch.telemetry.store_write("commit", 0.1)
    assert watch.codes() == []


def test_a_disk_with_less_than_a_tenth_left_is_a_fault_before_it_is_full(watch: Watch) -> None:
    size = 20 * 2**30
    watch.telemetry.store_disk(size // 10, size)
    assert watch.codes() == []
    watch.telemetry.store_disk(size // 10 - 1, size)
    (fault,) = watch.telemetry.faults()
    assert (fault.code, fault.is_page, fault.runbook) == ("store_disk_low", True, "StoreDiskLow")
    assert fault.message == (
        "the store's disk has 2.0 GiB of 20.0 GiB left; the controller stops when it is full. "
        "Free space on it, or make it larger"
    )
    watch.telemetry.store_disk(0, size)
    assert "has 0 MiB of 20.0 GiB left" in watch.telemetry.faults()[0].message
    watch.telemetry.store_disk(size, size)
    assert watch.codes() == []


def test_the_thresholds_are_those_of_the_alerts() -> None:
    groups = alert_rules(AlertParameters())["groups"]
    rules = {rule["alert"]: rule["expr"] for rule in groups[1]["rules"]}
    jobs = "sum(autoscaler_jobs_in_progress)"
    assert rules["LeakSuspected"].endswith(f" > {LEAK.above:g} + {LEAK.share:g} * {jobs}")
    low = FaultCode.STORE_DISK_LOW.entry.threshold.share
    assert f"free_bytes < {low:g} * autoscaler_store_disk_bytes" in rules["StoreDiskLow"]
    slow, _, more = rules["StoreSlow"].partition(f" >= {SLOW.count} and ")
    name, within = "autoscaler_store_write_duration_seconds", span(WRITES_WITHIN)
    assert f'{name}_bucket{{le="{SLOW.above:g}"}}[{within}]' in slow
    assert more.startswith(f"{slow} > {SLOW.share:g} * sum")


def test_a_budget_without_a_known_limit_is_no_fault(watch: Watch) -> None:
    watch.telemetry.github_budget(1, "acme", "core", 0, None)
    watch.telemetry.github_budget(1, "acme", "core", None, 5000)
    assert watch.codes() == []


def test_a_budget_without_an_answer_for_an_hour_has_no_series_until_the_next_one(
    watch: Watch,
) -> None:
    def shown() -> list[str]:
        text = b"".join(watch.telemetry.render()).decode()
        return [line for line in text.splitlines() if line.startswith("autoscaler_github_rate_")]

    labels = '{account="acme",app="1",resource="core"}'
    low = [f"autoscaler_github_rate_limit_remaining{labels} 99.0"]
    size = [f"autoscaler_github_rate_limit{labels} 5000.0"]
    watch.telemetry.github_budget(1, "acme", "core", 99, 5000)
    watch.now += BUDGET_RESETS_AFTER - 1.0
    assert shown() == low + size
    assert watch.codes() == ["github_budget_low"]
    watch.now += 1.0
    assert shown() == []
    assert watch.codes() == []
    watch.telemetry.github_budget(1, "acme", "core", 99, 5000)
    assert shown() == low + size


def test_the_dollars_are_counted_by_what_they_bought(watch: Watch) -> None:
    assert watch.telemetry.spent() == {}
    for use, dollars in ((MachineUse.JOB, 1.5), (MachineUse.JOB, 1.0), (MachineUse.BOOT, 0.25)):
        watch.telemetry.machine_used(GPU, use, 60.0, dollars, "")
    watch.telemetry.machine_used(GPU, MachineUse.BOOT, 60.0, float("nan"), "")
    assert watch.telemetry.spent() == {("gpu", MachineUse.JOB): 2.5, ("gpu", MachineUse.BOOT): 0.25}


def test_the_metrics_are_reported_as_well(watch: Watch) -> None:
    watch.telemetry.delivery(DeliveryAnswer.ACCEPTED)
    watch.telemetry.health_check_failed(GPU, "disk", BAD)
    text = b"".join(watch.telemetry.render()).decode()
    assert 'autoscaler_deliveries_total{outcome="accepted"} 1.0' in text
    assert (
        'autoscaler_health_checks_failed_total{check="disk",image="ami-0bad",sku="gpu"} 1.0' in text
    )
