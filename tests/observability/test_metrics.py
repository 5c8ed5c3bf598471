"""The contents of /metrics: values, bounded labels, and agreement with the documentation."""

import re
from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from autoscaler.controller.ports.telemetry import FleetCounts, Telemetry
from autoscaler.model.accounting import FailureCause, MachineUse, RunState, WaitStage
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.deliveries import DeliveryAnswer
from autoscaler.model.identifiers import ProviderName, SkuName
from autoscaler.model.jobs.job import Admission
from autoscaler.model.jobs.runner_group_excess import OUTSIDE_ACCESS_REASONS
from autoscaler.model.jobs.runners import RunnerState
from autoscaler.model.machines.failures import HEALTH_CHECKS, FailureClass
from autoscaler.model.machines.interruptions import NoticeKind, RerunOutcome
from autoscaler.model.machines.machine import ExitReason, MachineState, TerminationReason
from autoscaler.model.prices_and_quotas import PriceSource, QuotaSource
from autoscaler.model.reasons.table import Unmatched, WaitCode
from autoscaler.observability.labels import OTHER, BoundedLabel
from autoscaler.observability.metrics import MOST_NODES, PrometheusTelemetry

GPU = SkuName("linux.gpu")
WINDOWS = SkuName("windows.gpu")
EAST = ProviderName("us-east-1")
SPOT = CapacityType.SPOT
OF_SPOT = {"sku": GPU, "provider": EAST, "capacity_type": "spot"}
DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"


LISTED = "acme/listed"


def make() -> PrometheusTelemetry:
    return PrometheusTelemetry([GPU, WINDOWS], [EAST], "1.2.3", [LISTED])


def samples(telemetry: PrometheusTelemetry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = b"".join(telemetry.render()).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(telemetry: PrometheusTelemetry, name: str, **labels: str) -> float | None:
    return samples(telemetry).get((f"autoscaler_{name}", tuple(sorted(labels.items()))))


def test_prometheus_metrics_implement_the_telemetry_port() -> None:
    port: Telemetry = make()
    port.reconciliation(0.1)


def test_known_series_exist_from_the_start_with_zero() -> None:
    telemetry = make()
    for sku in (GPU, WINDOWS):
        assert value(telemetry, "jobs_waiting", sku=sku) == 0
        assert value(telemetry, "jobs_in_progress", sku=sku) == 0
        assert value(telemetry, "job_queue_duration_seconds_count", sku=sku) == 0
        assert value(telemetry, "sku_circuit_open", sku=sku) == 0
    for answer in DeliveryAnswer:
        assert value(telemetry, "deliveries_total", outcome=answer) == 0


def test_a_replica_that_does_not_lead_shows_nothing_that_only_the_leader_knows() -> None:
    telemetry = make()
    telemetry.replica(leads=False, epoch=7)
    names = {name for name, _ in samples(telemetry) if not name.startswith("process_")}
    assert names == {
        "autoscaler_build_info",
        "autoscaler_deliveries_total",
        "autoscaler_event_loop_lag_max_seconds",
        "autoscaler_leader",
        "autoscaler_lease_epoch",
    }
    assert value(telemetry, "leader") == 0
    assert value(telemetry, "lease_epoch") == 7
    telemetry.replica(leads=True, epoch=8)
    assert value(telemetry, "leader") == 1
    assert value(telemetry, "jobs_waiting", sku=GPU) == 0


def test_prices_are_shown_by_their_source_and_when_they_were_read() -> None:
    telemetry = make()
    for kind in (CapacityType.SPOT, CapacityType.ON_DEMAND):
        where = {"provider": EAST, "capacity_type": kind.value}
        assert value(telemetry, "prices_read_timestamp_seconds", **where) == 0
        for source in PriceSource:
            assert value(telemetry, "prices", **where, source=source.value) == 0
    block = {"provider": EAST, "capacity_type": "capacity-block"}
    assert value(telemetry, "prices_read_timestamp_seconds", **block) is None
    where = {"provider": EAST, "capacity_type": "on-demand"}
    telemetry.prices(EAST, CapacityType.ON_DEMAND, {PriceSource.CACHE: 4}, 1.8e9)
    assert value(telemetry, "prices", **where, source="cache") == 4
    assert value(telemetry, "prices_read_timestamp_seconds", **where) == 1.8e9
    telemetry.prices(EAST, CapacityType.ON_DEMAND, {PriceSource.API: 4}, 1.9e9)
    assert value(telemetry, "prices", **where, source="cache") == 0
    assert value(telemetry, "prices", **where, source="api") == 4


def test_quotas_are_shown_by_their_source_and_when_they_were_read() -> None:
    telemetry = make()
    assert value(telemetry, "quotas_read_timestamp_seconds", provider=EAST) == 0
    for source in QuotaSource:
        assert value(telemetry, "quotas", provider=EAST, source=source.value) == 0
    telemetry.quotas(EAST, {QuotaSource.CACHE: 2, QuotaSource.UNKNOWN: 1}, 1.8e9)
    assert value(telemetry, "quotas", provider=EAST, source="cache") == 2
    assert value(telemetry, "quotas_read_timestamp_seconds", provider=EAST) == 1.8e9
    telemetry.quotas(EAST, {QuotaSource.API: 3}, 1.9e9)
    assert value(telemetry, "quotas", provider=EAST, source="cache") == 0
    assert value(telemetry, "quotas", provider=EAST, source="unknown") == 0
    assert value(telemetry, "quotas", provider=EAST, source="api") == 3


def test_gauges_show_the_last_fleet_and_return_to_zero() -> None:
    telemetry = make()
    telemetry.fleet(
        FleetCounts(
            jobs_waiting={GPU: 3},
            oldest_waiting={GPU: 90.5},
            jobs_in_progress={GPU: 2, WINDOWS: 1},
            machines={(GPU, MachineState.READY): 4, (GPU, MachineState.ASSIGNED): 2},
            machines_foreign=7,
            machines_unverified=6,
            machines_not_terminating=5,
            dollars_per_hour=12.5,
            circuits_open=[GPU],
            option_circuits_open=[(GPU, EAST), (SkuName("old"), ProviderName("gone"))],
        )
    )
    assert value(telemetry, "jobs_waiting", sku=GPU) == 3
    assert value(telemetry, "oldest_waiting_job_age_seconds", sku=GPU) == 90.5
    assert value(telemetry, "oldest_waiting_job_age_seconds", sku=WINDOWS) == 0
    assert value(telemetry, "jobs_in_progress", sku=WINDOWS) == 1
    assert value(telemetry, "machines", sku=GPU, state="ready") == 4
    assert value(telemetry, "machines_foreign") == 7
    assert value(telemetry, "machines_unverified") == 6
    assert value(telemetry, "machines_not_terminating") == 5
    assert value(telemetry, "cost_dollars_per_hour") == 12.5
    assert value(telemetry, "sku_circuit_open", sku=GPU) == 1
    assert value(telemetry, "sku_circuit_open", sku=WINDOWS) == 0
    assert value(telemetry, "launch_option_circuit_open", sku=GPU, provider=EAST) == 1
    assert value(telemetry, "launch_option_circuit_open", sku=OTHER, provider=OTHER) == 1
    telemetry.fleet(FleetCounts(jobs_waiting={GPU: 1}))
    assert value(telemetry, "launch_option_circuit_open", sku=GPU, provider=EAST) == 0
    assert value(telemetry, "sku_circuit_open", sku=GPU) == 0
    assert value(telemetry, "jobs_waiting", sku=GPU) == 1
    assert value(telemetry, "oldest_waiting_job_age_seconds", sku=GPU) == 0
    assert value(telemetry, "jobs_in_progress", sku=GPU) == 0
    assert value(telemetry, "machines", sku=GPU, state="ready") == 0
    assert value(telemetry, "machines_foreign") == 0
    assert value(telemetry, "machines_unverified") == 0
    assert value(telemetry, "machines_not_terminating") == 0


def test_a_series_names_each_avoided_node_and_disappears_with_the_avoidance() -> None:
    telemetry = make()
    nodes = [(GPU, EAST, f"node-{number:03}") for number in range(MOST_NODES + 10)]
    telemetry.fleet(FleetCounts(nodes_avoided=nodes))
    assert value(telemetry, "node_avoided", sku=GPU, provider=EAST, node="node-007") == 1
    assert b"".join(telemetry.render()).decode().count("\nautoscaler_node_avoided{") == MOST_NODES
    telemetry.fleet(FleetCounts(nodes_avoided=nodes[7:8]))
    assert value(telemetry, "node_avoided", sku=GPU, provider=EAST, node="node-007") == 1
    telemetry.fleet(FleetCounts())
    assert b"".join(telemetry.render()).decode().count("\nautoscaler_node_avoided{") == 0


def test_waiting_jobs_are_counted_by_reason_and_return_to_zero() -> None:
    telemetry = make()
    reasons = {
        (GPU, WaitCode.QUOTA): 3,
        (GPU, WaitCode.CAPACITY): 2,
        (SkuName("old"), WaitCode.QUOTA): 1,
    }
    telemetry.fleet(FleetCounts(waiting_reasons=reasons))
    assert value(telemetry, "jobs_waiting_by_reason", sku=GPU, reason="quota") == 3
    assert value(telemetry, "jobs_waiting_by_reason", sku=GPU, reason="capacity") == 2
    assert value(telemetry, "jobs_waiting_by_reason", sku=OTHER, reason="quota") == 1
    telemetry.fleet(FleetCounts())
    assert value(telemetry, "jobs_waiting_by_reason", sku=GPU, reason="quota") == 0


def test_skus_that_left_the_configuration_are_added_up_as_other() -> None:
    telemetry = make()
    counts = {SkuName("old.a"): 2, SkuName("old.b"): 3}
    ages = {SkuName("old.a"): 7.0, SkuName("old.b"): 5.0}
    telemetry.fleet(FleetCounts(jobs_waiting=counts, oldest_waiting=ages))
    assert value(telemetry, "oldest_waiting_job_age_seconds", sku=OTHER) == 7
    assert value(telemetry, "jobs_waiting", sku=OTHER) == 5
    telemetry.fleet(FleetCounts())
    assert value(telemetry, "jobs_waiting", sku=OTHER) == 0


def test_everything_that_is_reported_is_counted() -> None:
    telemetry = make()
    telemetry.github_call("GET /orgs/{org}/actions/runners", "200", 0.2)
    telemetry.provider_call(EAST, "CreateFleet", "InsufficientInstanceCapacity", 1.5)
    telemetry.delivery(DeliveryAnswer.ACCEPTED)
    telemetry.bootstrap("attest", "signature")
    telemetry.job_started(GPU, "acme/widgets", 90.0)
    telemetry.job_completed(GPU, "acme/widgets", "success")
    telemetry.job_unmatched(Unmatched.ACCESS)
    telemetry.launches(GPU, EAST, SPOT, 5)
    telemetry.launch_failures(GPU, EAST, SPOT, FailureClass.CAPACITY, 2)
    telemetry.machine_terminated(GPU, TerminationReason.IDLE)
    telemetry.runner_exited(GPU, ExitReason.VERSION_DEPRECATED)
    telemetry.reconciliation(0.004)
    telemetry.notice(EAST, "poison")
    telemetry.machine_interrupted(GPU, NoticeKind.SPOT_INTERRUPTION)
    telemetry.rerun(GPU, RerunOutcome.ACCEPTED)
    route = "GET /orgs/{org}/actions/runners"
    fleet = {"provider": EAST, "operation": "CreateFleet"}
    capacity = "InsufficientInstanceCapacity"
    assert value(telemetry, "github_requests_total", endpoint=route, outcome="200") == 1
    assert value(telemetry, "github_request_duration_seconds_sum", endpoint=route) == 0.2
    assert value(telemetry, "runner_exits_total", sku=GPU, reason="version_deprecated") == 1
    assert value(telemetry, "provider_requests_total", **fleet, outcome=capacity) == 1
    assert value(telemetry, "provider_request_duration_seconds_sum", **fleet) == 1.5
    assert value(telemetry, "deliveries_total", outcome="accepted") == 1
    assert value(telemetry, "bootstrap_requests_total", step="attest", outcome="signature") == 1
    assert value(telemetry, "job_queue_duration_seconds_bucket", sku=GPU, le="60.0") == 0
    assert value(telemetry, "job_queue_duration_seconds_bucket", sku=GPU, le="90.0") == 1
    assert value(telemetry, "jobs_completed_total", sku=GPU, conclusion="success") == 1
    assert value(telemetry, "jobs_unmatched_total", reason="access") == 1
    assert value(telemetry, "jobs_unmatched_total", reason="labels") == 0
    assert value(telemetry, "launches_total", **OF_SPOT) == 5
    assert value(telemetry, "launch_failures_total", **OF_SPOT, reason="capacity") == 2
    assert value(telemetry, "machines_terminated_total", sku=GPU, reason="idle") == 1
    assert value(telemetry, "notices_total", provider=EAST, kind="poison") == 1
    spot = {"sku": GPU, "kind": "spot_interruption"}
    assert value(telemetry, "machines_interrupted_total", **spot) == 1
    assert value(telemetry, "jobs_interrupted_total", sku=GPU, outcome="accepted") == 1
    assert value(telemetry, "reconcile_duration_seconds_count") == 1


def test_the_staleness_of_an_accounts_data_is_a_metric() -> None:
    telemetry = make()
    telemetry.github_staleness("acme", 75.0)
    assert value(telemetry, "github_staleness_seconds", account="acme") == 75.0
    telemetry.github_staleness("acme", 12.5)
    assert value(telemetry, "github_staleness_seconds", account="acme") == 12.5
    telemetry.github_unwatched("acme", 15_000)
    assert value(telemetry, "github_repositories_unwatched", account="acme") == 15_000


def test_the_longest_lag_of_the_event_loop_is_shown_from_the_start() -> None:
    telemetry = make()
    assert value(telemetry, "event_loop_lag_max_seconds") == 0.0
    telemetry.event_loop_lag(0.25)
    assert value(telemetry, "event_loop_lag_max_seconds") == 0.25
    telemetry.event_loop_lag(-0.001)
    assert value(telemetry, "event_loop_lag_max_seconds") == 0.0


def test_jobs_outside_access_and_runner_groups_that_are_too_wide_are_counted() -> None:
    telemetry = make()
    telemetry.job_refused(GPU, "fork_not_allowed")
    telemetry.job_outside_access(GPU, "fork")
    telemetry.job_outside_access(GPU, "repository")
    assert value(telemetry, "jobs_refused_total", sku=GPU, reason="fork_not_allowed") == 1.0
    for reason, count in (("fork", 1.0), ("repository", 1.0), ("scope", None), ("branch", None)):
        assert value(telemetry, "jobs_outside_access_total", sku=GPU, reason=reason) == count
    for too_wide in (True, False):
        telemetry.runner_group("acme", "gpu", "public_repositories", too_wide)
        group = {"account": "acme", "runner_group": "gpu", "reason": "public_repositories"}
        assert value(telemetry, "runner_group_too_wide", **group) == float(too_wide)


def test_a_runner_version_without_a_deadline_has_no_series() -> None:
    telemetry = make()
    name = "runner_version_deadline_timestamp_seconds"
    for at, expected in (
        (None, None),
        (1.8e9, 1.8e9),
        (1.9e9, 1.9e9),
        (float("nan"), None),
        (1.8e9, 1.8e9),
        (None, None),
    ):
        telemetry.runner_deadline(GPU, "2.338.0", at)
        assert value(telemetry, name, sku=GPU) == expected


def test_the_budget_is_shown_by_app_account_and_bucket_where_github_says_it() -> None:
    telemetry = make()
    telemetry.github_budget(7, "acme", "actions_runner_registration", 9_000, 10_000)
    telemetry.github_budget(7, "acme", "actions_runner_registration", 8_999, 10_000)
    telemetry.github_budget(7, "", "core", None, None)
    bucket = {"app": "7", "account": "acme", "resource": "actions_runner_registration"}
    assert value(telemetry, "github_answers_total", **bucket) == 2
    assert value(telemetry, "github_rate_limit_remaining", **bucket) == 8_999
    assert value(telemetry, "github_rate_limit", **bucket) == 10_000
    assert value(telemetry, "github_answers_total", app="7", account="", resource="core") == 1
    reported = {
        labels for name, labels in samples(telemetry) if name == "autoscaler_github_rate_limit"
    }
    assert len(reported) == 1


def test_failed_health_checks_are_counted_by_their_image() -> None:
    telemetry = make()
    pod = f"registry.example:5000/ci/runner-cuda:12.8@sha256:{'0a' * 32}"
    for image, label in (
        ("ami-0a", "ami-0a"),
        (pod, pod),
        ("", "unknown"),
        ("ami 0a", OTHER),
        ("x" * 501, OTHER),
    ):
        telemetry.health_check_failed(GPU, "gpu_count", image)
        counted = {"sku": GPU, "check": "gpu_count", "image": label}
        assert value(telemetry, "health_checks_failed_total", **counted)
    others = {"sku": GPU, "check": "gpu_count", "image": OTHER}
    assert value(telemetry, "health_checks_failed_total", **others) == 2


@pytest.mark.case(
    "no metric of the time in the queue",
    topic="Complaints about other fleets",
    source="ARC#3423",
)
def test_histogram_buckets_extend_to_hours() -> None:
    telemetry = make()
    telemetry.job_started(GPU, "acme/widgets", 7000.0)
    assert value(telemetry, "job_queue_duration_seconds_bucket", sku=GPU, le="3600.0") == 0
    assert value(telemetry, "job_queue_duration_seconds_bucket", sku=GPU, le="7200.0") == 1


def test_impossible_numbers_neither_raise_nor_change_the_sums() -> None:
    telemetry = make()
    for wrong in (float("nan"), float("inf"), -5.0):
        telemetry.job_started(GPU, "acme/widgets", wrong)
        telemetry.reconciliation(wrong)
        telemetry.github_call("GET /x", "200", wrong)
    telemetry.launches(GPU, EAST, SPOT, -3)
    telemetry.launch_failures(GPU, EAST, SPOT, FailureClass.HEALTH_CHECK, -1)
    telemetry.job_started(GPU, "acme/widgets", 4.0)
    assert value(telemetry, "job_queue_duration_seconds_sum", sku=GPU) == 4.0
    assert value(telemetry, "launches_total", **OF_SPOT) == 0
    telemetry.machine_used(GPU, MachineUse.JOB, float("nan"), -1.0, "")
    assert value(telemetry, "machine_seconds_total", sku=GPU, use="job") == 0
    assert value(telemetry, "machine_dollars_total", sku=GPU, use="job") == 0


CALLS: dict[str, tuple[object, ...]] = {
    "github_call": ("GET /x", "200", 0.1),
    "github_budget": (1, "acme", "core", 1, 2),
    "github_staleness": ("acme", 1.0),
    "github_unwatched": ("acme", 1),
    "event_loop_lag": (0.1,),
    "runner_group": ("acme", "gpu", "public_repositories", True),
    "provider_call": (EAST, "CreateFleet", "ok", 0.1),
    "bootstrap": ("attest", "ok"),
    "job_started": (GPU, "acme/widgets", 1.0),
    "job_waited": (GPU, {WaitStage.BOOT: 1.0}),
    "job_completed": (GPU, "acme/widgets", "success"),
    "job_failed": (GPU, FailureCause.CODE),
    "machine_used": (GPU, MachineUse.JOB, 1.0, 0.1, "acme/widgets"),
    "machine_launched": (EAST, SPOT, "us-east-1a"),
    "offering_refused": (EAST, SPOT, "us-east-1a", FailureClass.CAPACITY),
    "store_write": ("commit", 0.1),
    "job_refused": (GPU, "fork_not_allowed"),
    "job_outside_access": (GPU, "fork"),
    "launches": (GPU, EAST, SPOT, 1),
    "launch_failures": (GPU, EAST, SPOT, FailureClass.CAPACITY, 1),
    "machine_terminated": (GPU, TerminationReason.IDLE),
    "health_check_failed": (GPU, "gpu_count", "ami-0a"),
    "runner_exited": (GPU, ExitReason.VERSION_DEPRECATED),
    "runner_deadline": (GPU, "2.338.0", 1.8e9),
    "notice": (EAST, "poison"),
    "machine_interrupted": (GPU, NoticeKind.SPOT_INTERRUPTION),
    "rerun": (GPU, RerunOutcome.ACCEPTED),
    "quotas": (EAST, {QuotaSource.API: 3}, 1.8e9),
    "prices": (EAST, CapacityType.SPOT, {PriceSource.API: 3}, 1.8e9),
}
"""One call of each method of the port that has a label which is not of a fixed list."""

MOST_VALUES = {"app": 33, "account": 67, "endpoint": 67, "resource": 18}
MOST_VALUES |= {"outcome": 74 + len(DeliveryAnswer), "operation": 50, "step": 26, "kind": 6}
MOST_VALUES |= {"sku": 3, "provider": 2, "conclusion": 10, "state": 20}
MOST_VALUES |= {"runner_group": 66, "check": len(HEALTH_CHECKS)}
ACCESS = {*OUTSIDE_ACCESS_REASONS, "public_repositories", "outside_access", OTHER}
MOST_VALUES |= {
    "reason": len({*FailureClass, *Unmatched, *ExitReason, *TerminationReason, *Admission, *ACCESS})
}
MOST_VALUES |= {"zone": 67, "stage": 8, "use": 6, "cause": 3, "repository": 1, "operation": 50}
MOST_VALUES |= {
    "image": 34,
    "capacity_type": len(CapacityType) + 1,
    "source": len({*PriceSource, *QuotaSource}),
}


def flooded(method: str, places: Collection[int], floods: int = 200) -> PrometheusTelemetry:
    """Telemetry that was called with words that differ each time in these places."""
    telemetry = make()
    for number in range(floods):
        values = [
            (number if isinstance(value, int) else f"word{number}") if place in places else value
            for place, value in enumerate(CALLS[method])
        ]
        getattr(telemetry, method)(*values)
    return telemetry


def label_values(telemetry: PrometheusTelemetry) -> dict[str, set[str]]:
    """All values of each label."""
    seen: dict[str, set[str]] = {}
    for _, labels in samples(telemetry):
        for label, text in labels:
            seen.setdefault(label, set()).add(text)
    return seen


def words(method: str) -> list[int]:
    """The places of a call's labels that take any word."""
    fixed = (
        *(FailureClass, CapacityType, TerminationReason, ExitReason, NoticeKind, RerunOutcome),
        *(MachineUse, FailureCause),
    )
    labels = 1 if method == "github_budget" else 0
    return [
        place
        for place, value in enumerate(CALLS[method])
        if (isinstance(value, str) and not isinstance(value, fixed)) or place < labels
    ]


@pytest.mark.case(
    "metrics with unbounded labels",
    topic="Complaints about other fleets",
    source="ARC#3153; ARC#3670; ARC#4612",
)
@pytest.mark.parametrize(
    ("method", "place"), [(method, place) for method in CALLS for place in words(method)]
)
def test_a_flood_of_one_label_s_values_makes_a_bounded_number_of_series(
    method: str, place: int
) -> None:
    telemetry = flooded(method, {place})
    seen = label_values(telemetry)
    for label in seen.keys() - {"le", "version", "python", "implementation"}:
        assert len(seen[label]) <= MOST_VALUES[label], label
    assert any(OTHER in values for values in seen.values())
    # The label is bounded, and the observation is still counted.
    counted = {name for name, labels in samples(telemetry) if OTHER in dict(labels).values()}
    assert counted


@pytest.mark.parametrize("method", CALLS)
def test_many_values_of_all_labels_at_once_do_not_multiply_the_series(method: str) -> None:
    """One value less for each label that varies too: series grow with the flood's length, not beyond."""
    before = len(samples(make()))
    one = len(samples(flooded(method, words(method), 1))) - before
    many = len(samples(flooded(method, words(method), 500))) - before
    again = len(samples(flooded(method, words(method), 1000))) - before
    assert many == again, "a longer flood makes no more series"
    assert many <= 66 * max(one, 1)


def test_every_method_with_a_label_is_flooded() -> None:
    unlabelled = {
        "reconciliation",
        "fleet",
        "job_unmatched",
        "delivery",
        "delivery_lag",
        "store_size",
        "store_disk",
        "github_clock",
    }
    unlabelled |= {"run_time", "run_ended", "offerings_on_hold"}
    public = {name for part in Telemetry.__mro__ for name in vars(part) if name[0] != "_"}
    assert set(CALLS) == public - unlabelled


def test_many_values_of_one_label_leave_room_for_another_labels_values() -> None:
    telemetry = make()
    for number in range(2000):
        telemetry.github_call(f"GET /repos/{number}", "200", 0.1)
    telemetry.github_call("GET /x", "418", 0.1)
    assert value(telemetry, "github_requests_total", endpoint=OTHER, outcome="418") == 1


def test_every_observation_with_an_arbitrary_label_is_counted() -> None:
    telemetry = flooded("bootstrap", {0, 1}, 2000)
    found = samples(telemetry)
    total = sum(
        count for (name, _), count in found.items() if name == "autoscaler_bootstrap_requests_total"
    )
    assert total == 2000


@settings(derandomize=True, deadline=None)
@given(st.lists(st.text(max_size=120), max_size=60), st.integers(0, 10))
def test_a_bounded_label_never_has_more_values_than_promised(words: list[str], extra: int) -> None:
    label = BoundedLabel({"known"}, extra)
    values = {label.value(word) for word in words}
    assert len(values - {OTHER, "known"}) <= extra
    assert all(value.isascii() and value.isprintable() for value in values)
    assert label.value("known") == "known"


def test_metrics_are_not_in_the_default_registry_of_the_library() -> None:
    make(), make()
    assert not [m for m in REGISTRY.collect() if m.name.startswith("autoscaler")]


def test_build_and_process_are_shown_and_creation_times_are_not() -> None:
    telemetry = make()
    assert b'version="1.2.3"' in b"".join(telemetry.render())
    names = {name for name, _ in samples(telemetry)}
    assert {"process_resident_memory_bytes", "process_open_fds"} <= names
    assert not [name for name in names if name.endswith("_created")]
    assert telemetry.content_type.startswith("text/plain; version=")


def test_every_metric_is_documented_and_every_documented_one_exists() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) \| ([^|]*)\|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE
    )
    documented = {
        name: (kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows
    }
    assert len(documented) == len(rows)
    assert documented == exported()


def everything() -> PrometheusTelemetry:
    """Return metrics in which every one has a series."""
    telemetry = make()
    telemetry.github_call("GET /x", "200", 0.1)
    telemetry.github_budget(1, "acme", "core", 4999, 5000)
    telemetry.github_staleness("acme", 75.0)
    telemetry.github_unwatched("acme", 0)
    telemetry.event_loop_lag(0.01)
    telemetry.runner_group("acme", "gpu", "outside_access", too_wide=True)
    telemetry.runner_deadline(GPU, "2.338.0", 1.8e9)
    telemetry.provider_call(EAST, "CreateFleet", "ok", 0.1)
    telemetry.delivery(DeliveryAnswer.ACCEPTED)
    telemetry.bootstrap("attest", "ok")
    telemetry.job_completed(GPU, "acme/widgets", "success")
    telemetry.notice(EAST, "poison")
    telemetry.job_started(GPU, LISTED, 1.0)
    telemetry.job_waited(GPU, {WaitStage.BOOT: 1.0})
    telemetry.job_completed(GPU, LISTED, "success")
    telemetry.job_failed(GPU, FailureCause.CODE)
    telemetry.job_refused(GPU, "fork_not_allowed")
    telemetry.job_outside_access(GPU, "fork")
    telemetry.machine_used(GPU, MachineUse.JOB, 1.0, 0.1, LISTED)
    telemetry.machine_launched(EAST, SPOT, "us-east-1a")
    telemetry.offering_refused(EAST, SPOT, "us-east-1a", FailureClass.CAPACITY)
    telemetry.launches(GPU, EAST, SPOT, 1)
    telemetry.launch_failures(GPU, EAST, SPOT, FailureClass.CAPACITY, 1)
    telemetry.machine_terminated(GPU, TerminationReason.IDLE)
    telemetry.health_check_failed(GPU, "gpu_count", "ami-0a")
    telemetry.runner_exited(GPU, ExitReason.EXITED)
    telemetry.machine_interrupted(GPU, NoticeKind.SPOT_INTERRUPTION)
    telemetry.rerun(GPU, RerunOutcome.ACCEPTED)
    telemetry.run_time(LISTED, RunState.WAITING, 1.0)
    telemetry.store_write("commit", 0.01)
    telemetry.store_size(1, 2)
    telemetry.store_disk(1, 2)
    telemetry.offerings_on_hold({(EAST, SPOT, FailureClass.CAPACITY): 1})
    telemetry.fleet(
        FleetCounts(
            jobs_awaiting_approval={GPU: 1},
            runners={(GPU, RunnerState.BUSY): 1},
            machines={(GPU, MachineState.READY): 1},
        )
    )
    telemetry.fleet(
        FleetCounts(
            waiting_reasons={(GPU, WaitCode.QUOTA): 1},
            option_circuits_open=[(GPU, EAST)],
            nodes_avoided=[(GPU, EAST, "gpu-1")],
        )
    )
    return telemetry


def exported() -> dict[str, tuple[str, frozenset[str]]]:
    """Return the type and the labels of every metric."""
    found = {}
    for family in text_string_to_metric_families(b"".join(everything().render()).decode()):
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        name = family.name
        if family.type == "counter" and not name.endswith("_total"):
            name += "_total"
        found[name] = (family.type, frozenset(labels))
    return found
