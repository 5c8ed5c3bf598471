"""A changed fleet.yaml that is only planned with."""

import asyncio
from threading import Thread, current_thread
from typing import ClassVar

import pytest

from autoscaler.app.planned_file import MAX_OFFERINGS, MAX_PLANNED_SKUS
from autoscaler.controller.ports.operator_requests import (
    PlanInProgressError,
    RefusedConfigurationError,
)
from autoscaler.model.catalogue import Offering
from autoscaler.model.identifiers import SkuName
from tests.app.reloads import INSTALLATIONS, NOTHING, Served
from tests.patience import PATIENCE
from tests.providers.memory.provider import MemoryProvider


async def test_a_plan_against_a_file_uses_its_skus_and_changes_nothing(served: Served) -> None:
    content = served.write(("max_machines: 12", "max_machines: 1"), ("state.db", "other.db"))
    served.write()
    before = served.parts.catalogue
    found = await served.reloading.plan_against(content)
    assert (found.changed, found.needs_restart) == (("skus.gpu.max_machines",), ("store",))
    assert found.refused == ()
    assert found.preview == NOTHING
    (seen,) = served.parts.previewed
    assert seen.skus[SkuName("gpu")].max_machines == 1
    assert seen.skus[SkuName("gpu")].launch_options[0].offerings
    assert served.parts.catalogue is before
    assert served.in_use.configuration.settings.skus["gpu"].max_machines == 12


class NotedProvider(MemoryProvider):
    """A provider that notes in which threads its offerings are computed."""

    threads: ClassVar[set[Thread]] = set()

    def offerings(self, sku: SkuName, option: int) -> tuple[Offering, ...]:
        self.threads.add(current_thread())
        return super().offerings(sku, option)

    def with_offerings_of(self, other: MemoryProvider) -> MemoryProvider:
        made = super().with_offerings_of(other)
        return NotedProvider(made.name, "nowhere", made._offerings, INSTALLATIONS)


async def test_a_plan_computes_the_offerings_of_a_sent_file_outside_the_event_loop(
    served: Served,
) -> None:
    for name in served.providers:
        served.providers[name] = NotedProvider(name, "nowhere", {}, INSTALLATIONS)
    await served.reloading.plan_against(served.write())
    assert NotedProvider.threads
    assert current_thread() not in NotedProvider.threads


async def test_a_plan_ignores_keys_that_need_a_restart(served: Served) -> None:
    content = served.write(
        ("fleet: ci", "fleet: other"),
        ("{org: acme}", "{org: other}"),
        ("room: {G: 120}", "room: {G: 130}"),
        ("  armed:\n", "  new:\n    on: [{provider: north, size: n-1}]\n  armed:\n"),
        ("providers:\n", "providers:\n  north: {memory: {cloud: cloud-north, room: {G: 1}}}\n"),
        ("machines: 20", "machines: 30"),
    )
    before = served.parts.catalogue
    found = await served.reloading.plan_against(content)
    assert found.changed == ("limits.machines", "skus.new")
    assert "providers.north" in found.needs_restart
    (seen,) = served.parts.previewed
    assert (seen.fleet, seen.scopes, seen.limits.machines) == ("ci", before.scopes, 30)
    assert {name: seen.limits.quotas[name] for name in before.limits.quotas} == before.limits.quotas
    assert seen.skus[SkuName("new")].launch_options[0].offerings == ()


async def test_one_plan_is_made_at_a_time_even_if_its_caller_left(served: Served) -> None:
    served.parts.answers.clear()
    content = served.write()
    asking = asyncio.create_task(served.reloading.plan_against(content))
    async with asyncio.timeout(PATIENCE):
        await served.parts.asked.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    with pytest.raises(PlanInProgressError):
        async with asyncio.timeout(0.0):  # refused at once, without waiting for the first plan
            await served.reloading.plan_against(content)
    served.parts.answers.set()
    await asyncio.sleep(0.0)  # the first plan ends
    assert (await served.reloading.plan_against(content)).preview == NOTHING
    assert len(served.parts.previewed) == 2


async def test_a_plan_for_absurdly_many_ready_machines_is_refused(served: Served) -> None:
    """The event loop would plan for seconds, and any token may send a file."""
    minimums = ("max_machines: 12", "max_machines: 30000"), ("90m, min: 1}", "90m, min: 20001}")
    content = served.write(("machines: 20,", "machines: 20001,"), *minimums)
    with pytest.raises(RefusedConfigurationError) as caught:
        await served.reloading.plan_against(content)
    (problem,) = caught.value.problems
    assert "skus: keep up to 20001 machines ready, and a plan may have 20000; fix: lower" in problem
    assert served.parts.previewed == []
    await served.reloading.plan_against(served.write(*minimums))


async def test_a_plan_for_absurdly_many_skus_is_refused(served: Served) -> None:
    """The event loop matches jobs with all of them."""

    def with_skus(count: int) -> bytes:
        sku = "on: [{provider: west, size: n-1}]"
        lines = "".join(f"  s{number}: {{{sku}}}\n" for number in range(count - 4))
        return served.write(("  armed:\n", f"{lines}  armed:\n"))

    with pytest.raises(RefusedConfigurationError) as caught:
        await served.reloading.plan_against(with_skus(MAX_PLANNED_SKUS + 1))
    (problem,) = caught.value.problems
    assert "skus: has 201 SKUs, and a plan may have 200; fix: leave out SKUs" in problem
    assert served.parts.previewed == []
    await served.reloading.plan_against(with_skus(MAX_PLANNED_SKUS))


async def test_a_plan_for_absurdly_many_offerings_is_refused(served: Served) -> None:
    """The planner may look at each of them. Few lines name very many: a type has one in each zone."""

    def with_options(count: int) -> bytes:
        on = ", ".join(["{provider: west, size: n-1}"] * 20)
        lines = "".join(f"  s{number}: {{on: [{on}]}}\n" for number in range(count))
        return served.write(("  armed:\n", f"{lines}  armed:\n"))

    own, per_sku = 5 * 2, 20 * 2  # of the file's own launch options; in two zones
    most = (MAX_OFFERINGS - own) // per_sku
    with pytest.raises(RefusedConfigurationError) as caught:
        await served.reloading.plan_against(with_options(most + 1))
    (problem,) = caught.value.problems
    have = own + (most + 1) * per_sku
    assert f"skus: have {have} offerings" in problem
    assert f"and a plan may have {MAX_OFFERINGS}; fix: leave out SKUs" in problem
    assert served.parts.previewed == []
    await served.reloading.plan_against(with_options(most))


async def test_a_plan_reads_no_file_that_the_sent_one_names(served: Served) -> None:
    outside = "  webhook_secret_file: /nowhere/secret"
    content = served.write(("  webhook_secret_file: secret", outside))
    assert (await served.reloading.plan_against(content)).needs_restart == (
        "github.webhook_secret_file",
    )
    with pytest.raises(RefusedConfigurationError) as caught:
        await served.reloading.plan_against(b"fleet: 1")
    assert all(line.startswith("fleet.yaml:") for line in caught.value.problems)


async def test_a_plan_says_what_a_reload_would_refuse_now(served: Served) -> None:
    served.parts.machines.update(east=2)
    content = served.write(("cloud-east", "cloud-north"))
    (problem,) = (await served.reloading.plan_against(content)).refused
    key = "providers.east.memory.cloud"
    assert f"{key}: cannot change while provider east has 2 machines; fix: drain it" in problem
