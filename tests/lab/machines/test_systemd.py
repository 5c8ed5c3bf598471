"""The lab stops an agent's unit as the settings of the unit say."""

from pathlib import Path

import pytest

from autoscaler.model.catalogue import OperatingSystem
from autoscaler.providers.ec2.user_data import render_user_data
from lab.machines.process import ProcessHost
from lab.machines.systemd import DEFAULT_TIMEOUT, Unit, parse_unit
from tests.lab.machines.conftest import AGENT, UserData
from tests.lab.machines.world import World, running, until


def test_a_unit_without_kill_mode_has_its_whole_control_group_signalled() -> None:
    unit = parse_unit("[Service]\nExecStart=/bin/true\n")
    assert unit == Unit("control-group", DEFAULT_TIMEOUT)
    assert unit.signalled(7, {7, 8, 9}) == {7, 8, 9}


def test_a_stop_of_the_user_datas_unit_signals_only_the_agent() -> None:
    text = render_user_data(OperatingSystem.LINUX, "https://x.example", "lab", "ab" * 32)
    unit = parse_unit(text[text.index("[Unit]") : text.index("\nUNIT\n")])
    assert unit == Unit("mixed", 40.0)
    assert unit.signalled(7, {7, 8, 9}) == {7}


@pytest.mark.parametrize("line", ["KillMode=none", "TimeoutStopSec=infinity and more"])
def test_an_unknown_systemd_setting_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match=r"none|convert"):
        parse_unit(f"[Service]\n{line}\n")


@pytest.mark.parametrize(
    ("line", "reports"), [("TimeoutStopSec=0.02", 0), ("TimeoutStopSec=40", 1)]
)
async def test_an_agent_that_does_not_end_in_time_is_killed_before_it_reports(
    user_data: UserData, open_folder: Path, line: str, reports: int
) -> None:
    """The listener hangs and ignores the stop, so the agent waits its 30 seconds for it."""
    async with running(World(scale=20, jobs=[3600])) as world:
        host = ProcessHost(open_folder, AGENT, world.scale, keep=True)
        text = user_data(world).replace("TimeoutStopSec=40", line)
        hang = 'echo work > "$RUNNER_AGENT_ROOT/opt/actions-runner/hang"\n'
        await host.boot(world.machine("i-1", text.replace("set -eu\n", f"set -eu\n{hang}", 1)))
        await until(lambda: world.count("started") == 1)
        await host.shut_down("i-1")
        await host.close()
        assert len(world.exits) == reports
        assert world.conclusions == []
