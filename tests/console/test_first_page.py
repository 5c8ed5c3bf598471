"""The first page of the console answers: is it fine, and if not, why."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from autoscaler.console.pages import verdict
from autoscaler.console.runbooks import read_runbooks
from autoscaler.model import events as e
from autoscaler.model.catalogue import Catalogue, Limits
from autoscaler.model.cooldowns import Cooldown, launch_option_key
from autoscaler.model.identifiers import SkuName
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.operators import WHOLE_FLEET, HoldKind, sku_target
from autoscaler.model.reasons.faults import Fault as ShownFault
from autoscaler.model.reasons.table import CODES, FaultCode, WaitCode, cause_of
from autoscaler.model.wait_objectives import Starts, WaitObjective
from autoscaler.observability.alert_rules import AlertParameters, alert_rules
from tests.console.scenes import (
    A10G,
    CPU,
    NO_CAPACITY,
    T4,
    WINDOWS,
    Behaviour,
    Scene,
    pytorch,
    refusal,
    refuse_registrations,
)
from tests.console.serving import pages
from tests.ledger.builders import ALICE, World
from tests.planner.fleets import catalogue, sku
from tests.server.asked_world import AskedWorld

LONG_WAIT = FaultCode.JOB_WAITS_FOR_HOURS.entry.threshold.above
RUNBOOK_OF = {
    code: entry.runbook.name
    for code, entry in ((code, one.entry) for code, one in CODES.items())
    if entry.runbook is not None
}
"""The page of docs/runbooks/ for each code of a fault."""
RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks"

WORDS_OF_CODES = re.findall(
    r"^## (\w+)\n\nThe console says: (.+)\. (Alert|Runbook): \[(\w+)\]\((\w+)\.md\)\.$"
    r"(\nNo alert fires for this code alone\.)?",
    (RUNBOOKS / "reasons.md").read_text(),
    re.MULTILINE,
)
"""By code of a fault: its words, `Alert` or `Runbook`, the name and file of its page, a note of no alert."""


def text_of(scene: Scene, observed: tuple[ShownFault, ...] = ()) -> str:
    """Return the text of the first screen: of everything above the list of SKUs."""
    scene.controller.queries._observed = lambda: observed
    seen = scene.queries.overview()
    html = pages().overview(seen, pages().frame("on-call", seen.status.at))
    html = html.partition('<section aria-labelledby="skus">')[0]
    return unescape(" ".join(re.sub(r"<[^>]*>", " ", html).split()))


@dataclass(frozen=True)
class Fault:
    """A fault that is planted: what is done, and what the first screen then says."""

    plant: Callable[[Scene], Awaitable[None]]
    sku: str
    words: tuple[str, ...]
    runbook: str
    known: Callable[[], Catalogue] = pytorch


async def no_capacity(scene: Scene) -> None:
    scene.refused[A10G] = NO_CAPACITY
    await wait_for_a_push(scene)


async def no_quota(scene: Scene) -> None:
    words = "You have requested more vCPU capacity than your current vCPU limit of 64 allows"
    scene.refused[T4] = refusal(FailureClass.QUOTA, "VcpuLimitExceeded", words)
    await wait_for_a_push(scene)


async def no_permission(scene: Scene) -> None:
    words = "You are not authorized to perform this operation"
    scene.refused[WINDOWS] = refusal(FailureClass.CONFIGURATION, "UnauthorizedOperation", words)
    await wait_for_a_push(scene)


async def gpus_missing(scene: Scene) -> None:
    scene.behaviours[A10G] = Behaviour(failing_check="gpu_count: 3 GPUs of 4")
    await wait_for_a_push(scene, 900)


async def no_boot(scene: Scene) -> None:
    scene.behaviours[T4] = Behaviour(boots=False)
    await wait_for_a_push(scene, 4000)


async def runners_exit(scene: Scene) -> None:
    scene.behaviours[WINDOWS] = Behaviour(exits_at_once=True)
    for _ in range(3):
        await wait_for_a_push(scene)


async def registrations_refused(scene: Scene) -> None:
    refuse_registrations(scene)
    await wait_for_a_push(scene)


async def wait_for_a_push(scene: Scene, seconds: float = 300) -> None:
    await scene.push()
    await asyncio.sleep(seconds)


FAULTS = {
    "a zone without capacity": Fault(
        no_capacity, A10G, ("out of capacity", "InsufficientInstanceCapacity"), "OutOfCapacity"
    ),
    "a quota that is used up": Fault(
        no_quota, T4, ("quota used up", "VcpuLimitExceeded"), "LimitReached"
    ),
    "a missing permission": Fault(
        no_permission, WINDOWS, ("launches refused", "UnauthorizedOperation"), "LaunchesRefused"
    ),
    "max_machines is reached": Fault(
        wait_for_a_push,
        CPU,
        ("limit reached", f"max_machines of {CPU} (1) is reached"),
        "LimitReached",
        lambda: pytorch(cpus=1),
    ),
    "the fleet's limit is reached": Fault(
        wait_for_a_push,
        A10G,
        ("limit reached", "the fleet's limit of 4 machines is reached"),
        "LimitReached",
        lambda: pytorch(Limits(machines=4)),
    ),
    "machines with a missing GPU": Fault(
        gpus_missing, A10G, ("health checks fail", "gpu_count: 3 GPUs of 4"), "MachinesNotReady"
    ),
    "machines that do not boot": Fault(
        no_boot,
        T4,
        ("machines do not boot", "no attestation before the boot deadline"),
        "MachinesNotReady",
    ),
    "runners that exit at once": Fault(
        runners_exit, WINDOWS, ("circuit breaker open", "cannot connect"), "CircuitBreakerOpen"
    ),
    "GitHub refuses registrations": Fault(
        registrations_refused,
        CPU,
        ("registrations refused", "403: Resource not accessible by integration"),
        "RegistrationsRefused",
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_the_first_screen_names_the_sku_and_the_cause_of_a_fault(fault: Fault) -> None:
    async def script(scene: Scene) -> None:
        await fault.plant(scene)

    text = text_of(Scene(fault.known()).play(script))
    headline, _, rest = text.partition("What is wrong")
    assert "Fine" not in headline
    assert fault.sku in rest
    for words in fault.words:
        assert words in text
    assert f"Runbook: {fault.runbook}" in rest


def test_a_fleet_without_faults_is_fine() -> None:
    async def script(scene: Scene) -> None:
        for _ in range(2):
            await wait_for_a_push(scene, 1500)

    scene = Scene(pytorch()).play(script)
    text = text_of(scene)
    assert "Fine: no job waits" in text
    assert "What is wrong" not in text
    assert re.search(r"Started in time, last hour 100 % 18 starts · objective 99.90 %", text)
    # A push a moment ago: its jobs wait, and that is no fault.
    later = Scene(pytorch()).play(lambda one: wait_for_a_push(one, 20))
    assert "Fine: 9 jobs wait, and machines are on their way" in text_of(later)
    assert "machine_booting" in text_of(later)


def test_a_fault_that_only_the_metrics_show_is_on_the_first_screen() -> None:
    silent = ShownFault(
        "webhooks_silent",
        "",
        "a job started or ended 6m00s ago, and no webhook was accepted for 40m00s",
    )
    text = text_of(Scene(pytorch()).play(lambda _: asyncio.sleep(1)), (silent,))
    assert "webhooks silent" in text
    assert "Runbook: WebhooksSilent" in text


def test_a_hold_that_an_operator_forgot_hides_no_other_fault() -> None:
    world = World()
    world.do(e.HeldByOperator, HoldKind.PAUSED, WHOLE_FLEET, ALICE)
    quiet = AskedWorld(world).overview()
    assert verdict(quiet.status) == "all: paused by an operator"
    late = AskedWorld(world, hour={"gpu": Starts(10, 5)}).overview()
    assert [(one.code, one.skus) for one in late.status.faults] == [
        ("jobs_start_late", ("gpu",)),
        ("paused", ()),
    ]


def test_jobs_of_a_paused_sku_hide_no_fault_of_another_sku() -> None:
    world = World(catalogue(sku("cpu"), sku(max_machines=1)))
    world.do(e.HeldByOperator, HoldKind.PAUSED, sku_target(SkuName("cpu")), ALICE)
    world.queue(1, 2, 3, labels=("cpu",))
    world.queue(4, 5)
    overview = AskedWorld(world).overview()
    found = overview.status.faults
    assert [(one.code, one.about) for one in found] == [
        ("max_machines", "gpu"),
        ("paused", "cpu"),
    ]
    assert verdict(overview.status) == "gpu: limit reached, and 1 more"


def test_a_job_that_waits_for_hours_is_a_fault_of_its_sku() -> None:
    world = World()
    world.queue(1)
    queued = world.now

    def faults_after(seconds: float) -> tuple[ShownFault, ...]:
        world.now = queued + seconds
        return AskedWorld(world).overview().status.faults

    assert [one.code for one in faults_after(LONG_WAIT)] == ["jobs_start_late"]
    (fault,) = faults_after(LONG_WAIT + 60.0)
    assert (fault.code, fault.skus) == ("job_waits_for_hours", ("gpu",))
    assert fault.effects == ("jobs_start_late",)
    assert fault.message.startswith("a job has waited for 2h01m: ")


def test_an_open_breaker_of_a_launch_option_is_a_fault_of_its_sku() -> None:
    world = World()
    key = launch_option_key(SkuName("gpu"), 0)

    def shown() -> list[tuple[str, tuple[str, ...], str]]:
        overview = AskedWorld(world).overview()
        return [(one.code, one.skus, one.message) for one in overview.status.faults]

    world.state.set_cooldown(Cooldown(key, world.now, 2, "no gpu"))
    assert shown() == []
    world.state.set_cooldown(Cooldown(key, world.now, 3, "no gpu"))
    message = "circuit breaker of launch option east open: no gpu"
    assert shown() == [("option_circuit_open", ("gpu",), message)]
    # Jobs that wait for the same failure are one fault, not two.
    world.queue(1)
    failure = FailureClass.CONFIGURATION
    world.state.set_cooldown(
        Cooldown(key, world.now + 60.0, 3, "no", failure, error="Unauthorized")
    )
    (fault,) = shown()
    assert fault[:2] == ("configuration", ("gpu",))


def test_an_open_breaker_of_a_launch_option_hides_no_long_wait() -> None:
    world = World()
    world.queue(1)
    world.now += LONG_WAIT + 60.0
    key = launch_option_key(SkuName("gpu"), 0)
    world.state.set_cooldown(Cooldown(key, world.now - 1.0, 3, "no gpu"))
    found = AskedWorld(world).overview().status.faults
    assert [one.code for one in found] == ["job_waits_for_hours", "option_circuit_open"]


def test_a_fault_in_the_words_of_a_provider_has_one_full_stop() -> None:
    observed = (
        ShownFault("store_fails", "", "The disk is full."),
        ShownFault("store_slow", "", "slow"),
    )
    overview = AskedWorld(World(), observed=observed).overview()
    html = pages().overview(overview, pages().frame("alice", overview.status.at))
    assert re.findall(r'<p class="why">(.*)</p>', html) == ["The disk is full.", "slow."]


def test_the_faults_that_are_pages_come_before_those_that_are_tickets() -> None:
    world = World(catalogue(sku("cpu"), sku(max_machines=1)))
    world.queue(1, 2)
    world.carry_out()
    key = launch_option_key(SkuName("cpu"), 0)
    world.state.set_cooldown(Cooldown(key, world.now, 3, "no cpu"))
    observed = (
        ShownFault("github_budget_low", "", "few requests are left"),
        ShownFault("runner_version_refused", "cpu", "GitHub refuses the version"),
        ShownFault("store_fails", "", "the store fails"),
    )
    overview = AskedWorld(world, observed=observed).overview()
    found = overview.status.faults
    assert [(one.code, one.about) for one in found] == [
        ("runner_version_refused", "cpu"),
        ("store_fails", ""),
        ("max_machines", "gpu"),
        ("option_circuit_open", "cpu"),
        ("github_budget_low", ""),
    ]
    assert verdict(overview.status) == "cpu: runner version refused, and 4 more"


def test_a_fault_is_a_page_if_its_alert_is_one() -> None:
    alerts = {
        (rule["alert"], rule["labels"]["severity"])
        for group in alert_rules(AlertParameters())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    known = (one.entry.runbook for one in CODES.values() if one.entry.runbook is not None)
    assert {(one.name, one.severity.value) for one in known} <= alerts


def test_a_fleet_without_jobs_is_fine() -> None:
    assert verdict(AskedWorld(World()).overview().status) == "Fine: no job waits for a machine"


def test_a_late_start_is_measured_and_reported_by_the_objective_of_its_sku() -> None:
    objectives = (WaitObjective("slow", "cpu", 600, 0.5), WaitObjective("fast", "gpu", 30, 0.9))
    hour = {"gpu": Starts(10, 2, 0.9), "cpu": Starts(10, 5, 0.5)}
    overview = AskedWorld(World(), hour=hour, objectives=objectives).overview()
    (fault,) = overview.status.faults
    assert (fault.code, fault.skus) == ("jobs_start_late", ("gpu",))
    assert fault.message == "2 jobs of 10 waited for longer than 30 seconds in the last hour"
    text = pages().overview(overview, pages().frame("alice", overview.status.at))
    assert "2 objectives" in text


def waiting_codes(rule: Any) -> list[str]:
    """The codes of the waiting jobs for which an alert fires.

    `MachinesNotReady` fires for failed machines, if jobs wait for the next ones.
    """
    found: list[str] = re.findall(r'jobs_waiting_by_reason{reason=~"([a-z_|]+)"}', rule["expr"])
    return found if rule["alert"] != "MachinesNotReady" else []


def test_a_reason_to_wait_has_the_runbook_of_its_alert() -> None:
    runbooks = {
        code: rule["alert"]
        for rule in alert_rules(AlertParameters())["groups"][1]["rules"]
        for codes in waiting_codes(rule)
        for code in codes.split("|")
    }
    assert len(runbooks) > 10
    assert {code: RUNBOOK_OF[code] for code in runbooks} == runbooks


def test_every_fault_has_words_and_a_runbook_that_exists() -> None:
    on_its_way = {
        WaitCode.RUNNER_IDLE,
        WaitCode.MACHINE_READY,
        WaitCode.MACHINE_BOOTING,
        WaitCode.LAUNCH_PLANNED,
        WaitCode.NOT_PLANNED,
        # An operator did this, and knows.
        WaitCode.PAUSED,
    }
    codes = {code.value for code in WaitCode if code not in on_its_way}
    assert codes <= RUNBOOK_OF.keys()
    assert set(RUNBOOK_OF.values()) <= read_runbooks().keys()
    named = {code for code, one in CODES.items() if one.entry.cause}
    assert named - {"paused", "drained", "quarantined"} <= RUNBOOK_OF.keys()


def test_every_alert_has_a_fault_but_those_that_no_controller_can_show() -> None:
    groups = alert_rules(AlertParameters(dollars_per_hour=50.0))["groups"]
    names = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    without_fault = names - set(RUNBOOK_OF.values())
    assert without_fault == {
        "ControllerGone",
        "CostOverBudget",
        "LeaderChangesOften",
        "NoLeader",
        "ReplicaBehind",
    }
    page = (RUNBOOKS.parent / "console.md").read_text()
    said = page.partition("alerts have no fault on the first page.")[2].partition("at once")[0]
    assert set(re.findall(r"`([A-Z]\w+)`", said)) == without_fault


def test_the_reason_codes_have_their_words_and_their_runbook() -> None:
    assert [(code, cause, name, page) for code, cause, _, name, page, _ in WORDS_OF_CODES] == [
        (code, cause_of(code), runbook, runbook) for code, runbook in sorted(RUNBOOK_OF.items())
    ]


FAILED_MACHINES = 'autoscaler_launch_failures_total{reason=~"boot_deadline|health_check"}'

READS = {
    "labels": "autoscaler_jobs_without_sku",
    "names_no_sku": "autoscaler_jobs_without_sku",
    "access": "autoscaler_jobs_without_sku",
    "option_circuit_open": "autoscaler_launch_option_circuit_open",
    "boot_deadline": FAILED_MACHINES,
    "circuit_open": "autoscaler_sku_circuit_open",
    "clock_skewed": "autoscaler_github_clock_ahead_seconds",
    "controller_slow": "autoscaler_event_loop_lag_max_seconds",
    "github_budget_low": "autoscaler_github_rate_limit_remaining",
    "github_lists_stale": "autoscaler_github_staleness_seconds",
    "health_check": FAILED_MACHINES,
    "health_checks_fail": "autoscaler_health_checks_failed_total",
    "job_outside_access": "autoscaler_jobs_outside_access_total",
    "job_waits_for_hours": "autoscaler_oldest_waiting_job_age_seconds) >",
    "jobs_start_late": "autoscaler:job_wait_late:ratio",
    "leak_suspected": 'autoscaler_machines{state=~"assigned|exited"}',
    "machines_foreign": "autoscaler_machines_foreign",
    "machines_not_terminating": "autoscaler_machines_not_terminating",
    "machines_unverified": "autoscaler_machines_unverified",
    "node_avoided": "autoscaler_node_avoided",
    "runner_group_too_wide": "autoscaler_runner_group_too_wide",
    "runner_version_expires": "autoscaler_runner_version_deadline_timestamp_seconds",
    "runner_version_refused": 'autoscaler_runner_exits_total{reason="version_deprecated"}',
    "store_disk_low": "autoscaler_store_disk_free_bytes",
    "store_fails": 'autoscaler_deliveries_total{outcome=~"store_failed|store_stalled|shed"}',
    "store_slow": "autoscaler_store_write_duration_seconds_bucket",
    "webhooks_silent": 'autoscaler_deliveries_total{outcome=~"accepted|duplicate|ignored"}',
}
"""By the code of a fault: what the expression of its alert reads, for codes that are no reason to wait."""


def test_a_code_has_an_alert_on_its_page_only_if_a_rule_reads_it() -> None:
    groups = alert_rules(AlertParameters())["groups"]
    rules = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    fires = {
        (code, rule["alert"])
        for rule in rules
        for codes in waiting_codes(rule)
        for code in codes.split("|")
    }
    fires |= {
        (code, rule["alert"])
        for rule in rules
        for code, what in READS.items()
        if what in rule["expr"].partition(" and on (sku) max ")[0]
    }
    said = {(code, name) for code, _, word, name, _, _ in WORDS_OF_CODES if word == "Alert"}
    assert said == fires
    alone = {code for code, _, _, _, _, no_alert in WORDS_OF_CODES if no_alert}
    assert alone == RUNBOOK_OF.keys() - {code for code, _ in fires}
