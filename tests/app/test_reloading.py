"""A changed fleet.yaml: used by the running controller, or refused with its problems."""

import asyncio
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from autoscaler.app.preflight import load_for_service
from autoscaler.config.changed_keys import changed_keys, is_applied_live, shown
from autoscaler.controller.ports.operator_requests import (
    RefusedConfigurationError,
    Reloaded,
)
from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.identifiers import InstallationId, ProviderName, SkuName
from tests.app.reloads import ALICE, BOB, Overtaken, Served, between_steps
from tests.app.served_process import TOKEN, logged, serving, write_operators
from tests.app.test_running import ROOT
from tests.config.fleet_file import Folder
from tests.patience import PATIENCE
from tests.providers.memory import REGISTERED
from tests.providers.memory.fleet import TEXT
from tests.providers.memory.provider import MemoryProvider

VERSIONS = ROOT / "autoscaler" / "images" / "versions.yaml"
INSTALLING = (
    ("limits:", "versions_file: versions.yaml\nlimits:"),
    (
        "max_machines: 3\n",
        "max_machines: 3\n    driver: install\n    accelerator: {vendor: nvidia, count: 1}\n",
    ),
)
"""Changes of fleet.yaml, after which a SKU installs a driver of its own versions_file."""


async def test_changed_skus_and_limits_take_effect_with_their_offerings(served: Served) -> None:
    served.write(
        ("machines: 20", "machines: 30"),
        ("max_machines: 12", "max_machines: 15"),
        ("  armed:\n", "  new:\n    on: [{provider: west, size: n-1}]\n  armed:\n"),
    )
    with capture_logs() as lines:
        done = await served.reloading.reload(by=ALICE)
    assert done.changed == ("limits.machines", "skus.gpu.max_machines", "skus.new")
    assert done.done == "3 changes in force, 3 jobs with other SKUs"
    found = served.parts.catalogue
    assert (found.limits.machines, found.skus[SkuName("gpu")].max_machines) == (30, 15)
    (option,) = found.skus[SkuName("new")].launch_options
    assert [one.instance_type for one in option.offerings] == ["n-1", "n-1"]
    assert SkuName("new") in served.skus
    assert SkuName("new") in served.in_use.health_checks
    assert served.parts.read_again == 1
    (line,) = [one for one in lines if one["event"] == "configuration_reloaded"]
    assert (line["by"], line["changed"], line["jobs"]) == ("alice", list(done.changed), 3)
    assert served.parts.history == [(ALICE, done.changed)]


async def test_a_file_that_check_refuses_changes_nothing(served: Served) -> None:
    served.write(("max_machines: 12", "max_machines: many"))
    before = served.parts.catalogue
    with capture_logs() as lines, pytest.raises(RefusedConfigurationError) as caught:
        await served.reloading.reload(by=ALICE)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{served.file}:")
    assert "skus.gpu.max_machines" in problem
    assert served.parts.catalogue is before
    assert served.in_use.configuration.settings.skus["gpu"].max_machines == 12
    (line,) = [one for one in lines if one["event"] == "configuration_not_reloaded"]
    assert line["problems"] == [problem]
    assert served.parts.history == []
    served.write(("max_machines: 12", "max_machines: 13"))
    assert (await served.reloading.reload(by=ALICE)).changed == ("skus.gpu.max_machines",)


async def test_without_a_change_the_files_are_read_again(served: Served) -> None:
    done = await served.reloading.reload(by=ALICE)
    assert done.changed == ()
    assert done.done == "no key changed; reread boot scripts and versions_file"


async def test_a_reload_does_not_wait_for_a_plan(served: Served) -> None:
    served.parts.answers.clear()
    asking = asyncio.create_task(served.reloading.plan_against(served.write()))
    async with asyncio.timeout(PATIENCE):
        await served.parts.asked.wait()
        served.write(("machines: 20", "machines: 30"))
        reloading = asyncio.create_task(served.reloading.reload(by=ALICE))
        await served.parts.changed.wait()
        served.parts.answers.set()
        await asyncio.gather(asking, reloading)


async def test_a_reload_goes_on_when_its_caller_left(served: Served) -> None:
    """Otherwise launch options of new SKUs would have no offerings until the next day."""
    served.parts.answers.clear()
    served.write(("machines: 20", "machines: 30"))
    reloading = asyncio.create_task(served.reloading.reload(by=ALICE))
    async with asyncio.timeout(PATIENCE):
        await served.parts.changed.wait()
        reloading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reloading
        served.parts.answers.set()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
    assert served.parts.read_again == 1


@pytest.mark.parametrize("later", [20, 40], ids=["as before", "changed again"])
async def test_of_two_reloads_that_overlap_the_later_file_wins(served: Served, later: int) -> None:
    def start() -> asyncio.Task[Reloaded]:
        served.write(("machines: 20", f"machines: {later}"))
        return asyncio.create_task(served.reloading.reload(by=BOB))

    threads = Overtaken(start)
    asyncio.get_running_loop().set_default_executor(threads)
    served.write(("machines: 20", "machines: 30"))
    async with asyncio.timeout(PATIENCE):
        await served.reloading.reload(by=ALICE)
        assert threads.other is not None
        await threads.other
    assert served.in_use.configuration.settings.limits.machines == later
    assert served.parts.catalogue.limits.machines == later
    assert served.parts.history == [(ALICE, ("limits.machines",)), (BOB, ("limits.machines",))]


async def test_a_reload_changes_the_health_checks_that_the_controller_has(served: Served) -> None:
    """The controller got the mapping when it started."""
    await served.reloading.reload(by=ALICE)
    held = served.in_use.health_checks
    assert held[SkuName("cpu")].parameters["disk_gb"] == 1
    served.write(
        ("  cpu:\n", "  cpu:\n    disk_gb: 500\n"),
        ("  armed:\n", "  new:\n"),
    )
    await served.reloading.reload(by=ALICE)
    assert held[SkuName("cpu")].parameters["disk_gb"] == 50
    assert set(held) == {"gpu", "big", "cpu", "new"}


async def test_a_reload_keeps_the_installation_that_was_adopted_meanwhile(served: Served) -> None:
    east, adopted = ProviderName("east"), [0x0BADCAFE]
    first = served.providers[east]

    def adopt() -> None:
        adopted.append(adopted[-1] + 1)
        with suppress(ProviderError):  # its cloud does not run
            served.providers[east].adopt(InstallationId(f"{adopted[-1]:08x}"))

    between_steps(adopt)
    await served.reloading.reload(by=ALICE)
    found = served.providers[east]
    assert isinstance(found, MemoryProvider)
    assert found is not first
    assert len(adopted) > 1
    assert found._installations.own == f"{adopted[-1]:08x}"


async def test_a_versions_file_that_vanishes_during_a_reload_is_a_problem(served: Served) -> None:
    versions = served.file.parent / "versions.yaml"
    shutil.copy(VERSIONS, versions)
    served.write(*INSTALLING)
    served.in_use.configuration = load_for_service(
        served.file, try_store=False, providers=REGISTERED
    )
    before, checks = served.parts.catalogue, dict(served.in_use.health_checks)
    between_steps(lambda: versions.unlink(missing_ok=True))
    with capture_logs() as lines, pytest.raises(RefusedConfigurationError) as caught:
        await served.reloading.reload(by=ALICE)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{versions}: cannot be read")
    (line,) = [one for one in lines if one["event"] == "configuration_not_reloaded"]
    assert line["problems"] == [problem]
    assert (served.parts.catalogue, served.in_use.health_checks) == (before, checks)
    assert served.parts.read_again == 0


def test_keys_that_differ_are_named_as_in_messages(served: Served) -> None:
    settings = served.in_use.configuration.settings
    assert changed_keys(settings, settings) == []
    served.write(('cron: "0 8 * * *"', 'cron: "0 9 * * *"'), ("G: 120", "G: 121"))
    other = load_for_service(served.file, try_store=False, providers=REGISTERED).settings
    paths = changed_keys(settings, other)
    assert shown(paths) == ["providers.east.memory.room.G", "skus.gpu.idle.schedule"]
    assert [is_applied_live(path) for path in paths] == [False, True]


async def test_a_running_controller_reloads_on_sighup_and_answers_plans(tmp_path: Path) -> None:
    folder, text = _folder(tmp_path)
    async with serving(folder, REGISTERED[-1]) as process:
        address = (await logged(process, "serving"))["on"]
        (folder / "fleet.yaml").write_text(text.replace("machines: 20", "machines: 21"))
        process.send_signal(signal.SIGHUP)
        reloaded = await logged(process, "configuration_reloaded")
        assert (reloaded["by"], reloaded["changed"]) == ("SIGHUP", ["limits.machines"])
        (row,) = await _history_of_fleet(address)
        assert (row["event"], row["detail"]) == (
            "reloaded",
            "by SIGHUP; 1 change: limits.machines",
        )
        (folder / "fleet.yaml").write_text("fleet: [")
        process.send_signal(signal.SIGHUP)
        refused = await logged(process, "configuration_not_reloaded")
        assert "has no comma or closing bracket" in refused["problems"][0]
        found = await _planned(address, text.encode())
        assert found["changed"] == ["limits.machines"]
        process.terminate()
        assert await process.wait() == 0


VANISHES = """\
import errno
import os
import sys
def vanish(event, args):
    if event == "open" and str(args[0]).endswith("versions.yaml") and os.path.exists("vanishes"):
        frame = sys._getframe()
        while frame is not None and frame.f_code.co_name != "health_check_parameters":
            frame = frame.f_back
        if frame is not None:
            os.remove("vanishes")
            sys.stdout.write('{"event": "vanished"}\\n')
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), args[0])
sys.addaudithook(vanish)
"""
"""While the file `vanishes` exists, there is no versions.yaml for the step of a reload that uses it."""


async def test_a_versions_file_that_vanishes_after_sighup_is_a_problem_in_the_log(
    tmp_path: Path,
) -> None:
    folder, text = _folder(tmp_path)
    for before, after in INSTALLING:
        text = text.replace(before, after)
    (folder / "fleet.yaml").write_text(text)
    shutil.copy(VERSIONS, folder)
    async with serving(folder, REGISTERED[-1], before=VANISHES) as process:
        await logged(process, "serving")
        (folder / "vanishes").touch()
        process.send_signal(signal.SIGHUP)
        await logged(process, "vanished")
        process.send_signal(signal.SIGHUP)  # waits until the first reload has ended
        refused = await logged(process, "configuration_not_reloaded", "configuration_reloaded")
        assert (refused["event"], refused["by"]) == ("configuration_not_reloaded", "SIGHUP")
        assert "versions.yaml: cannot be read" in refused["problems"][0]
        await logged(process, "configuration_reloaded")
        process.terminate()
        assert await process.wait() == 0


def _folder(parent: Path) -> tuple[Path, str]:
    """Return a folder with a fleet.yaml whose GitHub does not answer, and the text of the file."""
    folder = Folder(parent).path
    text = TEXT.replace(
        "scopes: [{org: acme}]", "scopes: [{org: acme}]\n  api_url: http://127.0.0.1:9"
    ).replace("public_url:", "admin_token_file: admin-token, public_url:")
    (folder / "fleet.yaml").write_text(text)
    write_operators(folder)
    return folder, text


async def _history_of_fleet(address: str) -> list[dict[str, Any]]:
    """Return what `autoscaler history all` prints with --json."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = f"http://{address}/admin/history/all"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers=headers) as answer,
    ):
        assert answer.status == 200
        rows: list[dict[str, Any]] = (await answer.json())["history"]
        return rows


async def _planned(address: str, content: bytes) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = f"http://{address}/admin/plan"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=content, headers=headers) as answer,
    ):
        assert answer.status == 200
        found: dict[str, Any] = await answer.json()
        return found
