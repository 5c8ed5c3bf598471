"""Boot scripts of Windows machines: the user data write them, and the agent runs them.

A program of the lab stands in for PowerShell.
"""

from typing import Any

import pytest

from lab.windows.disk import BASE, WindowsDisk
from lab.windows.host import WindowsHost
from lab.windows.processes import processes
from tests.lab.machines.world import ServedMachine, World, running, until
from tests.lab.system.pace import yielding
from tests.windows.conftest import Hosts, user_data

SCALE = 6.0

BEGAN = "Add-Content 'C:\\lab\\began' 'once'\r\n"
"""The stand-in creates no folder, so this also shows where a script may write."""


class CheckedWorld(World):
    """A world that keeps what machines reported of their health."""

    def __init__(self, scale: float, **more: Any) -> None:
        super().__init__(scale, **more)
        self.checks: dict[str, tuple[bool, str]] = {}

    async def health_checks(self, served_machine: ServedMachine, body: dict[str, Any]) -> None:
        self.checks = {one["name"]: (one["ok"], one["detail"]) for one in body["checks"]}
        served_machine.health_checks = body["passed"]


async def boot(world: World, make_host: Hosts, script: str) -> WindowsHost:
    """Boot a machine with a script, in a world."""
    host = make_host(world.scale)
    await host.boot(world.machine("i-1", user_data(world, script), "windows"))
    return host


def began(disk: WindowsDisk) -> int:
    """How often the script began."""
    file = disk.path("C:\\lab\\began")
    return file.read_text("utf-8").splitlines().count("once") if file.exists() else 0


async def test_it_runs_once_before_the_machine_attests(make_host: Hosts) -> None:
    world = CheckedWorld(yielding(SCALE), jobs=[0.5], assignment=False)
    async with running(world):
        script = f"{BEGAN}Write-Output 'größe </powershell>'\r\nexit 0\r\n"
        host = await boot(world, make_host, script)
        await until(lambda: world.count("poll") > 0)
        await host.reboot("i-1")
        world.assignment = True
        await until(lambda: bool(world.off))
        disk = host.disk("i-1")
        assert began(disk) == 1
        ok, detail = world.checks["boot_script"]
        assert (ok, detail.partition(" ")[0]) == (True, "took")
        assert disk.path(f"{BASE}\\boot-script.log").read_text("utf-8") == "größe </powershell>\n"
        assert (world.count("attest"), world.conclusions) == (2, ["success"])


@pytest.mark.case(
    "the operator's boot script fails on Windows: the machine gets no job, and the log is reported",
    topic="EC2's machines",
    source="Microsoft: about_PowerShell_exe",
)
@pytest.mark.parametrize(("end", "status"), [("exit 3", 3), ("throw 'no package'", 1)])
async def test_a_script_that_fails_is_reported_with_its_log(
    make_host: Hosts, end: str, status: int
) -> None:
    world = CheckedWorld(yielding(SCALE), jobs=[0.5])
    async with running(world):
        host = await boot(world, make_host, f"{BEGAN}Write-Output 'no package'\n{end}")
        await until(lambda: bool(world.off))
        assert world.steps("i-1", "heartbeat") == ["attest", "stage", "health-checks"]
        ok, detail = world.checks["boot_script"]
        assert (ok, detail.partition(" after ")[0]) == (False, f"exited with {status}")
        assert detail.endswith("no package")
        assert began(host.disk("i-1")) == 1


async def test_a_script_that_hangs_is_ended_with_its_children(make_host: Hosts) -> None:
    world = CheckedWorld(yielding(60.0), jobs=[0.5])
    async with running(world):
        python = "C:\\runner-agent\\python\\python.exe"
        child = f"& '{python}' '-c' 'import time; time.sleep(3600) # hangs'\n"
        host = await boot(world, make_host, f"{BEGAN}{child}")
        # `reported` has the step before its body has arrived.
        await until(lambda: bool(world.checks))
        ok, detail = world.checks["boot_script"]
        assert (ok, detail.partition(" after ")[0]) == (False, "timed out")
        assert detail.endswith(": it printed nothing")
        running_now = [line(pid) for pid in processes(host.disk("i-1").prefix)]
        assert [text for text in running_now if "boot-script" in text or "# hangs" in text] == []
        await until(lambda: bool(world.off))


async def test_a_restart_during_the_script_is_reported_and_not_repeated(make_host: Hosts) -> None:
    world = CheckedWorld(yielding(SCALE), jobs=[0.5])
    async with running(world):
        host = await boot(world, make_host, f"{BEGAN}Start-Sleep -Seconds 3600\n")
        await until(lambda: began(host.disk("i-1")) == 1)
        await host.reboot("i-1")
        await until(lambda: bool(world.off))
        ok, detail = world.checks["boot_script"]
        assert (ok, detail.startswith("was interrupted")) == (False, True)
        assert began(host.disk("i-1")) == 1


async def test_a_result_that_the_image_has_is_not_that_of_this_machine() -> None:
    """The user data remove it before they write the script: the lab does not play this line."""
    world = World(1.0, url="https://fleet.example")
    lines = user_data(world, "exit 0").splitlines()
    [removed] = [number for number, text in enumerate(lines) if "Remove-Item" in text]
    [written] = [number for number, text in enumerate(lines) if "WriteAllBytes" in text]
    assert lines[removed] == 'Remove-Item -Force "$base\\boot-script.*"'
    assert removed < written


def line(pid: int) -> str:
    """Return the command line of a process, or nothing if it has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            return file.read().decode(errors="replace").lower()
    except OSError:
        return ""
