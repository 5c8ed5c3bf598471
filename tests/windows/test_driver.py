"""`driver: install` on Windows, through the whole agent under Wine: what fails is named, and gets no job.

NVIDIA's installer and nvidia-smi are stand-ins, and so is the PowerShell that lists the devices.
"""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from lab.windows.launcher import launcher
from lab.windows.parts import Parts
from tests.lab.machines.world import ServedMachine, running, until
from tests.lab.system.pace import yielding
from tests.windows.conftest import Hosts, user_data
from tests.windows.test_boot_scripts import CheckedWorld

SCALE = 6.0
VERSION = "582.78"
T4 = (
    "PCI\\VEN_10DE&DEV_1EB8&SUBSYS_12A210DE&REV_A1\\4&5D18F2DF&0&00F0 PCI\\VEN_10DE&DEV_1EB8&REV_A1 "
    "PCI\\VEN_10DE&DEV_1EB8 PCI\\VEN_10DE&CC_030200 PCI\\VEN_10DE&CC_0302 PCI\\VEN_10DE PCI\\CC_030200"
)
"""Written from Microsoft's "Identifiers for PCI Devices"."""

DISK = "PCI\\VEN_1D0F&DEV_8061&SUBSYS_00001D0F&REV_00\\3&11583659&0&20 PCI\\VEN_1D0F&CC_010802"


class DriverWorld(CheckedWorld):
    """A world whose machines install a driver. It keeps the stages."""

    def __init__(self, scale: float, parts: Parts, **plan: Any) -> None:
        super().__init__(scale, jobs=[0.5])
        self.files["driver.exe"] = launcher(parts, "python", "nvidia_installer")
        self.stages: list[str] = []
        sha256 = hashlib.sha256(self.files["driver.exe"]).hexdigest()
        self.plan = {"vendor": "nvidia", "version": VERSION, "sha256": sha256, **plan}

    async def stage(self, served_machine: ServedMachine, body: dict[str, Any]) -> None:
        """Keep a stage."""
        self.stages.append(body["stage"])


def shown(version: str = VERSION, gpu: str = "Tesla T4") -> str:
    """What nvidia-smi prints, on one line."""
    device = f'<gpu id="0"><product_name>{gpu}</product_name></gpu>' if gpu else ""
    return f"<nvidia_smi_log><driver_version>{version}</driver_version>{device}</nvidia_smi_log>"


async def live(world: DriverWorld, make_host: Hosts, **files: str) -> Path:
    """Run a machine with these files of the lab to its end; return the folder of the files.

    A boot script writes them, before the agent attests.
    """
    planted = {"devices": f"{DISK}\n{T4}", "installer": "installs 0", "answer": shown(), **files}
    script = "".join(
        f"Add-Content 'C:\\lab\\{name}' '{line}'\n"
        for name, text in planted.items()
        for line in text.splitlines()
    )
    async with running(world):
        plan = {"url": f"{world.url}/files/driver.exe", "budget_s": 1800, **world.plan}
        world.parameters = {"driver": plan}
        host = make_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world, script), "windows"))
        await until(lambda: bool(world.off))
        return host.disk("i-1").path("C:\\lab")


@pytest.mark.case(
    "NVIDIA's installer for Windows exits with another status than 0 if Windows must restart",
    topic="Accelerators",
    source="pytorch/builder: driver_update.bat",
)
@pytest.mark.parametrize("status", [0, 1])
async def test_a_driver_that_nvidia_smi_shows_is_installed_whatever_the_installer_says(
    make_host: Hosts, parts: Parts, status: int
) -> None:
    world = DriverWorld(yielding(SCALE), parts)
    lab = await live(world, make_host, installer=f"installs {status}")
    ok, detail = world.checks["driver"]
    assert (ok, detail.partition(", try 1, ")[0]) == (True, f"NVIDIA {VERSION}, signed")
    assert (lab / "arguments").read_text() == "-s -noreboot\n"
    stages = ["driver_checks", "driver_download", "driver_build", "driver_load", "health_checks"]
    assert (world.stages, world.conclusions, world.wrong) == (stages, ["success"], [])


async def test_a_driver_of_this_version_is_not_installed_again(
    make_host: Hosts, parts: Parts
) -> None:
    world = DriverWorld(yielding(SCALE), parts)
    lab = await live(world, make_host, **{"nvidia-smi": shown()})
    assert world.checks["driver"][0]
    assert not (lab / "arguments").exists()


FAILURES = [
    ({"installer": "exits 0"}, {}, "driver_query", "the installer exited with 0 (try 3)"),
    ({"devices": DISK}, {}, "driver_device", "the machine has no NVIDIA GPU"),
    ({}, {"sha256": "0" * 64}, "driver_download", "its SHA-256 is"),
]
"""tests/agent/test_windows_driver.py has the others."""


@pytest.mark.parametrize(("files", "plan", "name", "why"), FAILURES)
async def test_a_planted_failure_is_named_and_gets_no_job(
    make_host: Hosts,
    parts: Parts,
    files: dict[str, str],
    plan: dict[str, Any],
    name: str,
    why: str,
) -> None:
    world = DriverWorld(yielding(SCALE), parts, **plan)
    await live(world, make_host, **files)
    failed = {name: detail for name, (ok, detail) in world.checks.items() if not ok}
    assert list(failed) == [name]
    assert why in failed[name]
    assert (world.count("poll"), world.count("connect")) == (0, 0)


async def test_an_installer_that_hangs_is_ended_within_the_budget(
    make_host: Hosts, parts: Parts
) -> None:
    """One try has 600 seconds, and all together have the budget."""
    # Only three times faster than the others, although a try is long: other programs have to end in time.
    world = DriverWorld(yielding(3 * SCALE), parts, budget_s=900)
    lab = await live(world, make_host, installer="hangs 0")
    [(name, detail)] = [(name, text) for name, (ok, text) in world.checks.items() if not ok]
    assert name == "driver_build"
    assert "driver.exe did not end within" in detail
    assert 1 <= (lab / "arguments").read_text().count("-s -noreboot") <= 2
    assert world.count("poll") == 0
