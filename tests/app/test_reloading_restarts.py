"""A changed fleet.yaml with which the controller starts again, or which would lose machines."""

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.ports.operator_requests import (
    ControllerStopsError,
    RefusedConfigurationError,
)
from tests.app.reloads import ALICE, Served, between_steps

NORTH = "  north: {memory: {cloud: cloud-north}}\n  west:"
MOVES = (
    ("fleet: ci", "fleet: other", "fleet", "the fleet has 3 machines"),
    ("state.db", "other.db", "store", "the fleet has 3 machines"),
    (
        "{org: acme}]",
        "{org: acme}]\n  api_url: https://github.example/api/v3",
        "github.api_url",
        "the fleet has 3 machines",
    ),
    (
        "cloud-east",
        "cloud-north",
        "providers.east.memory.cloud",
        "provider east has 2 machines",
    ),
)
"""What is written in place of what, the key, and why it cannot change: machines would not be found."""


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ("{org: acme}", "{org: acme, runner_group: gpu}", "github.scopes"),
        ("127.0.0.1:0", "127.0.0.1:9", "server.listen"),
        ("room: {G: 120}", "room: {G: 130}", "providers.east.memory.room.G"),
        ("  west:", NORTH, "providers.north"),
    ],
)
async def test_for_another_key_the_controller_starts_again(
    served: Served, before: str, after: str, key: str
) -> None:
    served.parts.machines.update(east=2, west=1)
    served.write((before, after), ("machines: 20", "machines: 30"))
    with capture_logs() as lines:
        done = await served.reloading.reload(by=ALICE)
    assert set(done.changed) == {key, "limits.machines"}
    assert done.done == "the controller starts again within its process to use 2 changes"
    (line,) = lines
    assert (line["event"], line["by"]) == ("controller_restarts", "alice")
    assert line["changed"] == list(done.changed)
    assert served.loop.stopping
    # Until then, it uses none of the changes.
    assert served.parts.catalogue.limits.machines == 20
    assert served.in_use.configuration.settings.limits.machines == 20
    change = served.reloading.decide()
    assert change is not None
    assert (change.by, change.keys) == (ALICE, done.changed)
    assert change.configuration.settings.limits.machines == 30


@pytest.mark.parametrize("group", ["{org: acme}", "{org: acme, runner_group: gpu}"])
async def test_a_controller_that_stops_takes_no_reload(served: Served, group: str) -> None:
    """Otherwise an operator would read that a file is in force, or that the controller starts again."""
    served.write(("{org: acme}", group), ("machines: 20", "machines: 30"))
    served.loop.stop()
    with capture_logs() as lines, pytest.raises(ControllerStopsError):
        await served.reloading.reload(by=ALICE)
    assert lines == []
    assert served.parts.catalogue.limits.machines == 20
    assert not served.reloading.restarts


async def test_a_controller_that_stops_meanwhile_does_not_start_again(served: Served) -> None:
    served.write(("{org: acme}", "{org: acme, runner_group: gpu}"))
    between_steps(served.loop.stop)
    with pytest.raises(ControllerStopsError):
        await served.reloading.reload(by=ALICE)
    assert not served.reloading.restarts


@pytest.mark.parametrize(("before", "after", "key", "why"), MOVES)
async def test_a_change_that_loses_machines_is_refused_while_there_are_any(
    served: Served, before: str, after: str, key: str, why: str
) -> None:
    served.parts.machines.update(east=2, west=1)
    served.write((before, after), ("machines: 20", "machines: 30"))
    with pytest.raises(RefusedConfigurationError) as caught:
        await served.reloading.reload(by=ALICE)
    (problem,) = caught.value.problems
    fix = "drain it and reload when it has none, or undo the change"
    assert problem.endswith(f"{key}: cannot change while {why}; fix: {fix}")
    assert not served.loop.stopping
    assert served.parts.catalogue.limits.machines == 20
    served.parts.machines.clear()
    assert key in (await served.reloading.reload(by=ALICE)).changed
    assert served.loop.stopping


async def test_a_provider_with_machines_is_not_removed(served: Served) -> None:
    served.parts.machines.update(east=1, west=2)
    east = "  east: {memory: {cloud: cloud-east, room: {G: 120}}}\n"
    served.write((east, ""), ("provider: east", "provider: west"))
    with pytest.raises(RefusedConfigurationError) as caught:
        await served.reloading.reload(by=ALICE)
    (problem,) = caught.value.problems
    assert "providers.east: cannot change while provider east has 1 machine; fix: drain" in problem
    served.parts.machines.update(east=-1)
    await served.reloading.reload(by=ALICE)
    assert served.loop.stopping


async def test_a_machine_launched_before_the_stop_keeps_the_earlier_configuration(
    served: Served,
) -> None:
    """The control loop ends its pass, and requests in flight end: both can bring machines."""
    served.write(("cloud-east", "cloud-north"))
    await served.reloading.reload(by=ALICE)
    served.parts.machines.update(east=1)
    with capture_logs() as lines:
        assert served.reloading.decide() is None
    assert served.reloading.restarts
    (line,) = lines
    assert (line["event"], line["by"]) == ("configuration_not_reloaded", "alice")
    assert "provider east has 1 machine" in line["problems"][0]
