"""Every alert fires during its fault, not before, and resolves after it: by Prometheus' own promtool."""

import itertools
import re
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from autoscaler.cli import commands
from autoscaler.ledger.failures.cooldowns import FAILED_MACHINES
from autoscaler.model.identifiers import Seconds
from autoscaler.model.reasons.table import WaitCode
from autoscaler.model.wait_objectives import WaitObjective
from autoscaler.observability.alert_rules import AlertParameters, alert_rules
from tests.command_line import example as example
from tests.command_line import run as run_command
from tests.observability.prometheus import promtool
from tests.observability.test_metrics import everything, exported, make

ROOT = Path(__file__).parents[2]
RUNBOOKS = ROOT / "docs" / "runbooks"
DEFAULTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
SCALE = 1 / 60
"""Hours become minutes, minutes seconds."""
QUIET = 60
"""Seconds without a fault before and after it."""


@dataclass(frozen=True)
class Fault:
    """What a metric shows second by second during a fault of `seconds`, and before and after it.

    A counter rises by `during` each second, and by `before` otherwise. A gauge has these values. `constant` are
    other series of the same time, and `rising` are counters that rise by these amounts each second.
    """

    series: str
    before: float
    during: float
    seconds: int
    counter: bool = False
    constant: tuple[tuple[str, float], ...] = ()
    rising: tuple[tuple[str, float], ...] = ()

    def values(self, recovery: int) -> str:
        steps = [self.before] * QUIET + [self.during] * self.seconds + [self.before] * recovery
        if not self.counter:
            return " ".join(f"{step:g}" for step in steps)
        total, sums = 0.0, []
        for step in steps:
            total += step
            sums.append(f"{total:g}")
        return " ".join(sums)


def waiting(reason: str, seconds: int) -> Fault:
    return Fault(f'autoscaler_jobs_waiting_by_reason{{sku="gpu",reason="{reason}"}}', 0, 3, seconds)


def gauge(name: str, before: float, during: float, seconds: int, labels: str = "") -> Fault:
    return Fault(f"autoscaler_{name}{{{labels}}}", before, during, seconds)


def failed_checks(image: str) -> str:
    labels = f'sku="gpu",check="gpu_count",image="{image}"'
    return f"autoscaler_health_checks_failed_total{{{labels}}}"


def failed_machines(reason: str) -> str:
    labels = f'sku="gpu",provider="east",capacity_type="spot",reason="{reason}"'
    return f"autoscaler_launch_failures_total{{{labels}}}"


REPLICA, OTHER = (f'job="fleet",instance="{one}"' for one in "ab")
STARTED = 'autoscaler_job_queue_duration_seconds_count{sku="gpu"}'

FAULTS = {
    "OutOfCapacity": waiting("capacity", 20),
    "LimitReached": waiting("quota", 35),
    "LaunchesRefused": waiting("configuration", 15),
    "MachinesNotReady": Fault(
        'autoscaler_jobs_waiting_by_reason{sku="gpu",reason="boot_deadline"}',
        0,
        3,
        20,
        constant=((STARTED, 7),),
        rising=((failed_machines("boot_deadline"), 0.1),),
    ),
    "RegistrationsRefused": waiting("registration_on_hold", 15),
    "JobWaitsForHours": gauge("oldest_waiting_job_age_seconds", 0, 8000, 10, 'sku="gpu"'),
    "CircuitBreakerOpen": gauge("sku_circuit_open", 0, 1, 35, 'sku="gpu"'),
    "NodeAvoided": gauge("node_avoided", 0, 1, 10, 'sku="gpu",provider="cluster",node="gpu-1"'),
    "HealthChecksFail": Fault(
        failed_checks("ami-0bad"),
        0,
        1,
        10,
        counter=True,
        # Two machines of another image failed, too: these do not fire.
        constant=((failed_checks("ami-0a"), 2),),
        # Jobs start, on machines of another image: else the alert lasts for two hours.
        rising=((STARTED, 1),),
    ),
    "RunnerVersionRefused": Fault(
        'autoscaler_runner_exits_total{sku="gpu",reason="version_deprecated"}',
        0,
        1,
        5,
        counter=True,
        constant=(('autoscaler_sku_circuit_open{sku="gpu"}', 1),),
    ),
    # Seven days are 10,080 s here, and time begins with 0.
    "RunnerVersionExpires": gauge(
        "runner_version_deadline_timestamp_seconds", 20_000, 10_000, 70, 'sku="gpu"'
    ),
    "MachinesDoNotTerminate": gauge("machines_not_terminating", 0, 1, 15),
    "MachinesUnverified": Fault(
        "autoscaler_machines_unverified", 0, 2, 1500, constant=(("autoscaler_machines_foreign", 0),)
    ),
    "JobsOutsideAccess": Fault(
        'autoscaler_jobs_outside_access_total{sku="gpu",reason="fork"}', 0, 1, 5, counter=True
    ),
    "RunnerGroupTooWide": gauge(
        "runner_group_too_wide",
        0,
        1,
        70,
        'account="acme",runner_group="gpu",reason="outside_access"',
    ),
    "WebhooksSilent": Fault(
        'autoscaler_deliveries_total{outcome="accepted"}',
        1,
        0,
        40,
        counter=True,
        rising=((STARTED, 1),),
    ),
    "GitHubBudgetLow": Fault(
        'autoscaler_github_rate_limit_remaining{app="1"}',
        5000,
        100,
        10,
        constant=(('autoscaler_github_rate_limit{app="1"}', 15000),),
    ),
    "GitHubListsStale": gauge("github_staleness_seconds", 30, 900, 15, 'account="acme"'),
    "LeakSuspected": Fault(
        'autoscaler_machines{sku="gpu",state="assigned"}',
        20,
        40,
        70,
        constant=(('autoscaler_jobs_in_progress{sku="gpu"}', 20),),
    ),
    "StoreSlow": Fault(
        'autoscaler_store_write_duration_seconds_bucket{operation="commit",le="0.5"}',
        10,
        0,
        25,
        counter=True,
        rising=(('autoscaler_store_write_duration_seconds_count{operation="commit"}', 10),),
    ),
    "JobsNotServed": gauge("jobs_without_sku", 0, 6, 10, 'reason="labels"'),
    "StoreDiskLow": Fault(
        "autoscaler_store_disk_free_bytes",
        50,
        9,
        15,
        constant=(("autoscaler_store_disk_bytes", 100),),
    ),
    "ClockSkewed": gauge("github_clock_ahead_seconds", 0.2, -31, 10),
    "ControllerSlow": gauge("event_loop_lag_max_seconds", 0.01, 2.5, 15),
    "StoreFails": Fault(
        'autoscaler_deliveries_total{outcome="store_failed"}', 0, 1, 5, counter=True
    ),
    "CostOverBudget": gauge("cost_dollars_per_hour", 90, 200, 35),
    "NoLeader": gauge("leader", 1, 0, 5, REPLICA),
    "LeaderChangesOften": Fault(
        f"autoscaler_lease_epoch{{{REPLICA}}}",
        0,
        1,
        10,
        counter=True,
        constant=((f"autoscaler_lease_epoch{{{OTHER}}}", 1),),
    ),
    "ReplicaBehind": Fault(
        f"autoscaler_lease_epoch{{{REPLICA}}}",
        7,
        0,
        5,
        constant=((f"autoscaler_lease_epoch{{{OTHER}}}", 7),),
    ),
}

TAKEN_OVER = (
    "CostOverBudget",
    "GitHubBudgetLow",
    "JobsNotServed",
    "LeakSuspected",
    "MachinesDoNotTerminate",
    "MachinesNotReady",
    "OutOfCapacity",
    "StoreSlow",
    "WebhooksSilent",
)
"""One alert for each way in which a rule adds up replicas."""

PARAMETERS = AlertParameters(
    objectives=(WaitObjective("gpu", "gpu.*", 300, 0.99), WaitObjective("rest", "cpu", 60, 0.9)),
    dollars_per_hour=100.0,
    scale=SCALE,
)


def alerts(rules: dict[str, Any]) -> list[dict[str, Any]]:
    return [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]


def run(folder: Path, tests: list[dict[str, Any]]) -> None:
    (folder / "rules.yaml").write_text(yaml.safe_dump(alert_rules(PARAMETERS)))
    suite = {"rule_files": ["rules.yaml"], "evaluation_interval": "1s", "tests": tests}
    promtool_tests(folder, suite)


def promtool_tests(folder: Path, suite: dict[str, Any]) -> None:
    (folder / "tests.yaml").write_text(yaml.safe_dump(suite))
    done = subprocess.run(
        [promtool(), "test", "rules", "tests.yaml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def firing(name: str, at: int, expected: bool) -> dict[str, Any]:
    return {
        "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
        "eval_time": f"{at}s",
        "exp_samples": [{"labels": "{}", "value": 1}] if expected else [],
    }


@pytest.mark.systems
@pytest.mark.parametrize("name", ["HealthChecksFail", "RunnerVersionRefused", "JobsOutsideAccess"])
def test_an_alert_on_a_counter_sees_the_first_events_of_a_series(name: str, tmp_path: Path) -> None:
    """The series begins at its first event, between two scrapes with several."""
    fault = FAULTS[name]
    series = [{"series": fault.series, "values": "_x60 " + " ".join(["3"] * 60)}]
    series += [{"series": one, "values": f"{value:g}x120"} for one, value in fault.constant]
    series += [{"series": one, "values": f"0+{value:g}x120"} for one, value in fault.rising]
    checks = [firing(name, QUIET - 1, False), firing(name, QUIET + 5, True)]
    checks.append(firing(name, QUIET + 35, False))
    run(tmp_path, [{"interval": "1s", "input_series": series, "promql_expr_test": checks}])


@pytest.mark.systems
def test_failing_health_checks_fire_until_a_job_starts(tmp_path: Path) -> None:
    fault = FAULTS["HealthChecksFail"]
    series = [
        {"series": fault.series, "values": "_x60 " + " ".join(["3"] * 120)},
        {"series": STARTED, "values": "7x100 8x80"},
    ]
    checks = [
        firing("HealthChecksFail", second, expected)
        for second, expected in ((QUIET + 35, True), (99, True), (103, False))
    ]
    run(tmp_path, [{"interval": "1s", "input_series": series, "promql_expr_test": checks}])


@pytest.mark.systems
@pytest.mark.parametrize("name", FAULTS)
def test_an_alert_fires_during_its_fault_and_resolves_after_it(name: str, tmp_path: Path) -> None:
    fault, recovery = FAULTS[name], 60
    end = QUIET + fault.seconds
    steps = end + recovery
    series = [{"series": fault.series, "values": fault.values(recovery)}]
    series += [{"series": one, "values": f"{value:g}x{steps}"} for one, value in fault.constant]
    series += [{"series": one, "values": f"0+{value:g}x{steps}"} for one, value in fault.rising]
    series += [{"series": "autoscaler_build_info", "values": f"1x{steps}"}]
    checks = [
        firing(name, QUIET - 1, expected=False),
        firing(name, end - 1, expected=True),
        firing(name, end + recovery - 1, expected=False),
    ]
    run(tmp_path, [{"interval": "1s", "input_series": series, "promql_expr_test": checks}])


@pytest.mark.systems
@pytest.mark.parametrize("name", TAKEN_OVER)
def test_an_alert_of_the_fleet_fires_although_another_replica_takes_over(
    name: str, tmp_path: Path
) -> None:
    """In the middle of the fault, the metrics of the fleet end at one replica and begin at the other."""
    fault = FAULTS[name]
    steps, change = QUIET + fault.seconds, QUIET + fault.seconds // 2
    values = {fault.series: fault.values(0).split()}
    values |= {one: [f"{value:g}"] * steps for one, value in fault.constant}
    values |= {one: [f"{value * at:g}" for at in range(steps)] for one, value in fault.rising}
    rising = {fault.series} if fault.counter else set()
    rising |= {one for one, _ in fault.rising}
    series = []
    for one, every in values.items():
        begin = float(every[change - 1]) if one in rising else 0.0
        later = [f"{float(value) - begin:g}" for value in every[change:]]
        series.append({"series": at(one, "a"), "values": " ".join([*every[:change], "stale"])})
        series.append({"series": at(one, "b"), "values": f"_x{change} {' '.join(later)}"})
    checks = [firing(name, QUIET - 1, expected=False), firing(name, steps - 1, expected=True)]
    run(tmp_path, [{"interval": "1s", "input_series": series, "promql_expr_test": checks}])


def at(series: str, replica: str) -> str:
    """Return the series of this replica."""
    name, _, labels = series.rstrip("}").partition("{")
    return f'{name}{{{labels}{"," if labels else ""}replica="{replica}"}}'


@pytest.mark.systems
def test_one_old_job_that_no_sku_serves_stays_a_fault_after_a_takeover(tmp_path: Path) -> None:
    labels = 'reason="labels",instance'
    series = [
        {"series": f'autoscaler_jobs_without_sku{{{labels}="a"}}', "values": "1x19 stale"},
        {"series": f'autoscaler_jobs_without_sku{{{labels}="b"}}', "values": "_x19 1x20 0x20"},
    ]
    # Half an hour is 30 s here.
    checks = [firing("JobsNotServed", at, at in (31, 38)) for at in (29, 31, 38, 42)]
    run(tmp_path, [{"interval": "1s", "input_series": series, "promql_expr_test": checks}])


@pytest.mark.systems
def test_alerts_of_replicas_do_not_fire_at_a_takeover_or_without_replicas(tmp_path: Path) -> None:
    """The lease lasts 15 s. Prometheus reads the metrics each 15 s, and has another fleet, on SQLite."""
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(alert_rules(AlertParameters())))
    # Replica a leads for 5 minutes and ends, b leads 30 s later, and then c, which nobody follows.
    rows = {
        'leader{job="fleet",instance="a"}': "1x20 stale",
        'leader{job="fleet",instance="b"}': "0x22 1x19 stale",
        'leader{job="fleet",instance="c"}': "0x42 1x20 0x20",
        'lease_epoch{job="fleet",instance="a"}': "100x20 stale",
        'lease_epoch{job="fleet",instance="b"}': "100x22 200x19 stale",
        'lease_epoch{job="fleet",instance="c"}': "100x22 200x19 300x40",
        'leader{job="small",instance="d"}': "1x82",
        'lease_epoch{job="small",instance="d"}': "0x82",
    }
    series = [{"series": f"autoscaler_{one}", "values": values} for one, values in rows.items()]
    checks = [
        firing(name, 15 * step, expected=name == "NoLeader" and step > 66)
        for name in ("NoLeader", "LeaderChangesOften", "ReplicaBehind")
        for step in (10, 21, 22, 24, 30, 43, 50, 62, 66, 68, 80)
    ]
    tests = [{"interval": "15s", "input_series": series, "promql_expr_test": checks}]
    suite = {"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": tests}
    promtool_tests(tmp_path, suite)


def failures_of_a_dead_image(boot: Seconds, count: int) -> list[Seconds]:
    """Return when the machines of one job fail. After the third, a hold comes before each launch."""
    times, now = [], 0.0
    for failed in range(count):
        now += boot
        times.append(now)
        now += FAILED_MACHINES.delay(failed - 2) if failed >= 2 else 0.0
    return times


def not_ready(
    failures: Iterable[Seconds],
    reasons: tuple[str, ...],
    starts: list[int],
    checks: dict[int, bool],
    code: str = "machine_booting",
) -> dict[str, Any]:
    """Return a test with a job that always waits, with this code. `failures` are in seconds, others minutes."""
    failed = [round(at * SCALE) for at in failures]
    steps = range(max(checks) + 1)
    series = [
        {"series": waiting_for(code), "values": f"1x{len(steps)}"},
        {"series": STARTED, "values": " ".join(str(sum(at <= t for at in starts)) for t in steps)},
    ]
    for index, reason in enumerate(reasons):
        # A series begins with its first failure.
        counts = [sum(at <= t for at in failed[index :: len(reasons)]) for t in steps]
        values = " ".join(str(count) if count else "_" for count in counts)
        series.append({"series": failed_machines(reason), "values": values})
    found = [firing("MachinesNotReady", at, expected) for at, expected in checks.items()]
    return {"interval": "1s", "input_series": series, "promql_expr_test": found}


def waiting_for(code: str) -> str:
    return f'autoscaler_jobs_waiting_by_reason{{sku="gpu",reason="{code}"}}'


@pytest.mark.systems
def test_two_failures_count_although_one_of_them_begins_a_series(tmp_path: Path) -> None:
    """A machine fails for the second time with one reason, and the next for the first time with another."""
    boots, checks = [60.0, 9000.0], 9600.0
    second = round(checks * SCALE)
    series = [boots[0], checks, boots[1]]
    reasons = ("boot_deadline", "health_check")
    run(tmp_path, [not_ready(series, reasons, [], {second - 2: False, second + 17: True})])


@pytest.mark.systems
@pytest.mark.parametrize("reasons", [("boot_deadline",), ("boot_deadline", "health_check")])
@pytest.mark.parametrize("boot", [180.0, 900.0, 1800.0])
def test_machines_of_a_dead_image_are_not_ready_until_a_job_starts(
    boot: Seconds, reasons: tuple[str, ...], tmp_path: Path
) -> None:
    """The alert fires within the hour from the second failure on, and does not resolve between failures."""
    times = failures_of_a_dead_image(boot, 12)
    second, end = round(times[1] * SCALE), round(times[-1] * SCALE)
    checks = {second: False, second + 14: False}
    checks |= dict.fromkeys(range(second + 16, end), True)
    checks |= {end + 2: False, end + 14: False}
    run(tmp_path, [not_ready(times, reasons, [end + 1], checks)])


@pytest.mark.systems
def test_machines_that_fail_now_and_then_are_no_page(tmp_path: Path) -> None:
    quiet = dict.fromkeys(range(300), False)
    run(
        tmp_path,
        [
            # One machine failed, and its job waits for capacity.
            not_ready([600.0], ("boot_deadline",), [], quiet),
            # Half of the machines fail, and the others start a job every 20 minutes.
            not_ready(range(600, 18_000, 1200), ("health_check",), list(range(0, 300, 20)), quiet),
            # A busy SKU: two machines failed, and two hours later its jobs wait for a limit.
            not_ready([600.0, 660.0], ("health_check",), list(range(0, 131, 10)), quiet),
            # Machines failed a while ago, and the jobs wait for a limit or an operator.
            not_ready([600.0, 660.0], ("health_check",), [], quiet, "max_machines"),
            not_ready([600.0, 660.0], ("health_check",), [], quiet, "paused"),
        ],
    )


@pytest.mark.systems
def test_an_open_breaker_of_a_launch_option_is_a_ticket_unless_the_sku_has_one(
    tmp_path: Path,
) -> None:
    name = 'autoscaler_launch_option_circuit_open{sku="gpu",provider="east"}'
    option = {"series": name, "values": "0x60 1x40 0x60"}
    skus = [
        {"series": f'autoscaler_sku_circuit_open{{sku="{sku}"}}', "values": f"{value}x160"}
        for sku, value in (("gpu", 0), ("cpu", 1))
    ]
    # The SKU cpu has an alert of its own from the 30th second on, as a page.
    expression = (
        'count by (sku, severity) (ALERTS{alertname="CircuitBreakerOpen",alertstate="firing"})'
    )
    page = {"labels": '{sku="cpu",severity="page"}', "value": 1}
    ticket = {"labels": '{sku="gpu",severity="ticket"}', "value": 1}
    checks = [
        {"expr": expression, "eval_time": f"{at}s", "exp_samples": samples}
        for at, samples in ((88, [page]), (95, [page, ticket]), (110, [page]))
    ]
    both = [
        {"series": name, "values": "1x100"},
        {"series": 'autoscaler_sku_circuit_open{sku="gpu"}', "values": "1x100"},
    ]
    alone = [
        {
            "expr": expression,
            "eval_time": "99s",
            "exp_samples": [{"labels": '{sku="gpu",severity="page"}', "value": 1}],
        }
    ]
    tests = [([option, *skus], checks), (both, alone)]
    run(
        tmp_path,
        [
            {"interval": "1s", "input_series": series, "promql_expr_test": found}
            for series, found in tests
        ],
    )


@pytest.mark.systems
def test_a_runner_version_is_near_its_end_from_seven_days_before_until_it_is_replaced(
    tmp_path: Path,
) -> None:
    name = "autoscaler_runner_version_deadline_timestamp_seconds"
    # The bound is met after 30 s, and the alert waits for an hour, which is 60 s here.
    near = {"series": f'{name}{{sku="gpu"}}', "values": f"{7 * 24 * 60 + 30}x160" + " _" * 400}
    checks = [
        firing("RunnerVersionExpires", 90, expected=False),
        firing("RunnerVersionExpires", 92, expected=True),
        # A new image has no deadline: the series ends, and counts for five minutes more.
        firing("RunnerVersionExpires", 160 + 302, expected=False),
    ]
    # A deadline that has passed needs a new image all the more.
    past = {"series": f'{name}{{sku="old"}}', "values": "1x160"}
    late = [firing("RunnerVersionExpires", 150, expected=True)]
    tests = [([near], checks), ([past], late)]
    run(
        tmp_path,
        [
            {"interval": "1s", "input_series": series, "promql_expr_test": found}
            for series, found in tests
        ],
    )


@pytest.mark.systems
def test_a_controller_without_metrics_is_gone(tmp_path: Path) -> None:
    present = {"series": "autoscaler_build_info", "values": f"{'1 ' * 60}{'_ ' * 400}{'1 ' * 60}"}
    checks = [
        firing("ControllerGone", 59, expected=False),
        # A series ends five minutes after its last value.
        firing("ControllerGone", 459, expected=True),
        firing("ControllerGone", 519, expected=False),
    ]
    run(tmp_path, [{"interval": "1s", "input_series": [present], "promql_expr_test": checks}])


@pytest.mark.systems
@pytest.mark.parametrize(
    ("late", "severities"),
    [(0.0, []), (0.05, ["ticket"]), (0.08, ["page", "ticket"]), (0.5, ["page", "page", "ticket"])],
)
def test_jobs_that_start_late_fire_by_how_fast_they_use_up_the_budget(
    late: float, severities: list[str], tmp_path: Path
) -> None:
    """With a target of 99 %, 1 % may be late: 5 % is 5 times the budget, 8 % 8 times, 50 % 50 times."""
    checks = [burning(QUIET, []), burning(QUIET + 300, severities)]
    run(tmp_path, [burn([(0.0, QUIET), (late, 300)], 100, checks)])


@pytest.mark.systems
def test_jobs_that_start_in_time_again_resolve_the_alert_within_its_short_windows(
    tmp_path: Path,
) -> None:
    """The long windows still hold the late starts. The short ones are 5, 30 and 360 s here."""
    end = QUIET + 300
    checks = [
        burning(end, ["page", "page", "ticket"]),
        burning(end + 10, ["page", "ticket"]),
        burning(end + 35, ["ticket"]),
        burning(end + 345, ["ticket"]),
        burning(end + 360, []),
        {
            "expr": 'count(autoscaler:job_wait_late:ratio_3d{sku="gpu.a"} > 0.1)',
            "eval_time": f"{end + 360}s",
            "exp_samples": [{"labels": "{}", "value": 1}],
        },
    ]
    run(tmp_path, [burn([(0.0, QUIET), (0.5, 300), (0.0, 400)], 100, checks)])


@pytest.mark.systems
def test_jobs_that_are_overdue_fire_while_none_starts(tmp_path: Path) -> None:
    """No share of the starts shows them. The objective of five minutes is 5 s here, and the delay 2 s."""
    name, age = "JobsStartLate", 'autoscaler_oldest_waiting_job_age_seconds{sku="gpu"}'
    in_time = " ".join(str(min(second, 150)) for second in range(200))
    buckets = ("_bucket", 'le="300.0",'), ("_bucket", 'le="+Inf",'), ("_count", "")
    queue = "autoscaler_job_queue_duration_seconds"
    series = [{"series": f'{queue}{of}{{{le}sku="gpu"}}', "values": in_time} for of, le in buckets]
    series.append({"series": age, "values": "301x100 299x20 301x79"})
    # Until second 150 a job starts each second, so some jobs start in time.
    checks = [firing(name, at, at > 153) for at in (100, 119, 149, 153, 160, 190)]
    run(tmp_path, [{"interval": "1s", "input_series": series, "promql_expr_test": checks}])


def burn(
    phases: list[tuple[float, int]], jobs: int, checks: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return a test with `jobs` starts a second. Each phase is the share that starts late, and its seconds."""
    name = "autoscaler_job_queue_duration_seconds"
    in_time, total = ["0"], 0.0
    for late, seconds in phases:
        for _ in range(seconds):
            total += jobs * (1.0 - late)
            in_time.append(f"{total:.10g}")
    every = f"0+{jobs}x{len(in_time) - 1}"
    rows = {
        f'{name}_bucket{{sku="gpu.a",le="300.0"}}': " ".join(in_time),
        f'{name}_bucket{{sku="gpu.a",le="+Inf"}}': every,
        f'{name}_count{{sku="gpu.a"}}': every,
    }
    series = [{"series": one, "values": values} for one, values in rows.items()]
    return {"interval": "1s", "input_series": series, "promql_expr_test": checks}


def burning(at: int, severities: list[str]) -> dict[str, Any]:
    """Return a check that JobsStartLate fires with these severities, and with no others."""
    return {
        "expr": 'count by (severity) (ALERTS{alertname="JobsStartLate",alertstate="firing"})',
        "eval_time": f"{at}s",
        "exp_samples": [
            {"labels": f'{{severity="{one}"}}', "value": severities.count(one)}
            for one in sorted(set(severities))
        ],
    }


@pytest.mark.systems
def test_a_controller_that_never_got_a_webhook_is_silent(tmp_path: Path) -> None:
    fresh = b"".join(make().render()).decode()
    assert 'autoscaler_deliveries_total{outcome="accepted"} 0.0' in fresh
    series = [
        {"series": 'autoscaler_deliveries_total{outcome="accepted"}', "values": "0x120"},
        {"series": STARTED, "values": "0+1x120"},
    ]
    # Half an hour of data is 30 s here, and the alert waits for five more.
    checks = [firing("WebhooksSilent", at, expected=at >= 35) for at in (6, 29, 34, 35, 100)]
    run(tmp_path, [{"interval": "1s", "input_series": series, "promql_expr_test": checks}])


@pytest.mark.systems
def test_webhooks_are_silent_only_if_a_job_started_without_one(tmp_path: Path) -> None:
    """The controller learns of a start within seconds: Prometheus may see it one scrape after its webhook."""
    webhook = {"series": 'autoscaler_deliveries_total{outcome="accepted"}', "values": "0x59 1x300"}
    cases = {
        "one job that runs for hours": ("0x60 1x299", ()),
        "a list shows a start four minutes before its webhook": ("0x55 1x304", ()),
        "a job that starts without a webhook": ("0x60 1x99 2x200", (166, 180, 190)),
    }
    ended = 'autoscaler_machine_seconds_total{sku="gpu",use="job"}'
    tests = []
    for counted, (starts, fires) in itertools.product((STARTED, ended), cases.values()):
        series = [
            webhook,
            {"series": counted, "values": starts},
            {"series": 'autoscaler_jobs_in_progress{sku="gpu"}', "values": "1x359"},
        ]
        times = (54, 59, 65, 90, 96, 120, 160, 165, 166, 180, 190, 192, 300)
        checks = [firing("WebhooksSilent", at, expected=at in fires) for at in times]
        tests.append({"interval": "1s", "input_series": series, "promql_expr_test": checks})
    run(tmp_path, tests)


@pytest.mark.systems
@pytest.mark.parametrize(
    "objective", [r"gpu=linux\.g5\..*:300:0.99", "x=(?:a|b):300:0.9", r"x=[a-z]{2,}\.b:300:0.9"]
)
def test_prometheus_accepts_the_rules_of_every_objective(objective: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(commands, ["alerts", "--objective", objective])
    assert result.exit_code == 0
    (tmp_path / "rules.yaml").write_text(result.stdout)
    check = [str(promtool()), "check", "rules", "rules.yaml"]
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.systems
def test_a_sku_counts_for_the_first_objective_that_matches_it(tmp_path: Path) -> None:
    objectives = (WaitObjective("gpu", "gpu.*"), WaitObjective("all"))
    rules = alert_rules(AlertParameters(objectives, scale=SCALE))
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    name = "autoscaler_job_queue_duration_seconds"
    every = [(f"{name}_count", ""), (f"{name}_bucket", ',le="300.0"')]
    series = [
        {"series": f'{one}{{sku="{sku}"{le}}}', "values": "0+1x120"}
        for sku in ("gpu.a", "cpu")
        for one, le in every
    ]
    recorded = "autoscaler:job_wait_late:ratio_3d"
    samples = [
        {"labels": f'{recorded}{{objective="{objective}",sku="{sku}"}}', "value": 0}
        for objective, sku in (("all", "cpu"), ("gpu", "gpu.a"))
    ]
    check = {"expr": recorded, "eval_time": "100s", "exp_samples": samples}
    suite = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1s",
        "tests": [{"interval": "1s", "input_series": series, "promql_expr_test": [check]}],
    }
    promtool_tests(tmp_path, suite)


def test_two_objectives_of_one_name_are_refused() -> None:
    twice = ["--objective", "x=a:300:0.9"] * 2
    result = CliRunner().invoke(commands, ["alerts", *twice])
    assert (result.exit_code, "one name" in result.stderr) == (2, True)


@pytest.mark.parametrize("target", [0.5, 0.84, 0.93, 0.94, 0.999])
def test_an_alert_that_cannot_fire_is_omitted(target: float) -> None:
    """At most all jobs start late: with a target of 0.9, none uses up the budget 14.4 times as fast."""
    rules = alert_rules(AlertParameters((WaitObjective(target=target),)))
    bounds = [
        float(alert["expr"].rpartition("> ")[2])
        for alert in alerts(rules)
        if alert["alert"] == "JobsStartLate" and ":ratio_" in alert["expr"]
    ]
    assert len(bounds) == 1 + (target > 1 - 1 / 6) + (target > 1 - 1 / 14.4)
    assert all(bound < 1.0 for bound in bounds)


WITHOUT_ALERT = {
    "runner_idle": "a runner is there",
    "machine_ready": "a machine is there",
    "machine_booting": "a machine is on its way",
    "launch_planned": "a machine is on its way",
    "not_planned": "the next plan decides",
    "paused": "an operator paused it",
    "fair_share": "other repositories' jobs get the machines",
    "circuit_open": "CircuitBreakerOpen has it by its own metric",
    "job_unconfirmed": "the controller asks GitHub again",
    "run_unknown": "the controller asks GitHub again",
}
"""By the code of a wait: why no alert names it."""


def test_every_code_of_a_wait_is_in_an_alert_or_needs_none() -> None:
    # Two rules of one alert may name a code: one for many jobs, one for old ones.
    patterns = {
        (alert["alert"], code)
        for alert in alerts(alert_rules(PARAMETERS))
        if "jobs_waiting_by_reason" in alert["expr"]
        for code in alert["expr"].partition('reason=~"')[2].partition('"')[0].split("|")
    }
    named = Counter(code for _, code in patterns)
    assert named == Counter({code.value for code in WaitCode} - WITHOUT_ALERT.keys())


def test_every_alert_is_tested_and_has_a_runbook() -> None:
    names = {alert["alert"] for alert in alerts(alert_rules(PARAMETERS))}
    assert names == {*FAULTS, "ControllerGone", "JobsStartLate"}
    assert {page.stem for page in RUNBOOKS.glob("*.md")} - {"README", "reasons"} == names
    for alert in alerts(alert_rules(PARAMETERS)):
        page = ROOT / alert["annotations"]["runbook_url"]
        assert page.read_text().startswith(f"# {alert['alert']}\n")


def test_the_shipped_rules_are_those_that_the_command_prints() -> None:
    result = CliRunner().invoke(commands, ["alerts"])
    assert result.exit_code == 0
    text = DEFAULTS.read_text()
    assert text.partition("\n")[2] == result.stdout
    assert text.startswith("# ")


def test_the_metrics_of_every_alert_exist() -> None:
    known = {name.removesuffix("_total") for name in exported()}
    for alert in alerts(alert_rules(PARAMETERS)):
        words = alert["expr"].replace("(", " ").replace("{", " ").replace(")", " ").split()
        used = {word.split("[")[0] for word in words if word.startswith("autoscaler_")}
        bare = {re.sub("_(total|bucket|count)$", "", name) for name in used}
        assert bare <= known, alert["alert"]


@pytest.mark.systems
def test_prometheus_finds_no_fault_with_the_metrics() -> None:
    done = subprocess.run(
        [promtool(), "check", "metrics"],
        input=b"".join(everything().render()),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_objectives_and_a_budget_can_be_chosen() -> None:
    arguments = ["alerts", "--objective", "win=windows.*:600:0.99", "--dollars-per-hour", "50"]
    result = CliRunner().invoke(
        commands, [*arguments, "--runbooks", "https://docs.example/runbooks"]
    )
    rules = yaml.safe_load(result.stdout)
    found = {alert["alert"]: alert for alert in alerts(rules)}
    assert found["CostOverBudget"]["expr"] == "max(autoscaler_cost_dollars_per_hour) > 50"
    page = "https://docs.example/runbooks/CostOverBudget.md"
    assert found["CostOverBudget"]["annotations"]["runbook_url"] == page
    assert 'objective="win"' in found["JobsStartLate"]["expr"]


def test_the_objectives_of_a_fleet_are_those_of_its_console(example: Path) -> None:
    expressions = [
        [one["expr"] for one in alerts(yaml.safe_load(run_command(*arguments).stdout))]
        for arguments in (["alerts"], ["alerts", "-c", example])
    ]
    assert expressions[0] == expressions[1]
    with example.open("a") as file:
        file.write("metrics: {wait_objectives: ['win=windows.*:600:0.99']}\n")
    result = run_command("alerts", "--config", example)
    assert result.exit_code == 0
    rules = alerts(yaml.safe_load(result.stdout))
    assert 'objective="win"' in str(rules)
    assert 'objective="all"' not in str(rules)
    both = run_command("alerts", "--config", "/nope", "--objective", "x=a:300:0.9")
    assert both.exit_code == 2
    assert "Invalid value for --objective: give --objective or --config, not both" in both.stderr


def test_the_objectives_of_a_fleet_need_no_other_file_of_it(example: Path) -> None:
    for file in example.parent.iterdir():
        if file != example and file.is_file():
            file.unlink()
    assert run_command("alerts", "--config", example).exit_code == 0


def test_a_fleet_file_that_cannot_be_used_is_refused(example: Path) -> None:
    with example.open("a") as file:
        file.write("metrics: {wait_objectives: [gpu]}\n")
    result = run_command("alerts", "--config", example)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "metrics.wait_objectives[0]" in result.stderr


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("x", "is not NAME=SKUS:SECONDS:TARGET"),
        ("x=a:301:0.9", "use one of 5, 10, 20"),
        ("x=a:300:1", "use a share such as 0.999"),
        ("x=a(:300:0.9", "is no regular expression"),
        ("x=x{99999999999999999999}:300:0.9", "cannot be used"),
        ('x=a"b:300:0.9', "cannot be used"),
        ("x=a:soon:0.9", "is not NAME=SKUS:SECONDS:TARGET"),
        ('a"b=a:300:0.9', "is not NAME=SKUS:SECONDS:TARGET"),
    ],
)
def test_an_unusable_objective_is_refused(given: str, words: str) -> None:
    result = CliRunner().invoke(commands, ["alerts", "--objective", given])
    assert result.exit_code == 2
    assert words in result.stderr


@pytest.mark.parametrize("given", ["nan", "inf", "-1"])
def test_a_budget_that_no_cost_can_exceed_or_that_every_cost_exceeds_is_refused(given: str) -> None:
    result = CliRunner().invoke(commands, ["alerts", "--dollars-per-hour", given])
    assert result.exit_code == 2
    assert "--dollars-per-hour" in result.stderr
    assert "is not an amount of dollars" in result.stderr
