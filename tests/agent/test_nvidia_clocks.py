"""NVIDIA's slowdowns and persistence mode: what fails a machine's health checks, and what does not."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lab.machines.gpus import nvidia_gpu, nvidia_log
from tests.agent.test_gpu_checks import ONE_A10G, Image
from tests.python_programs import first_line

PLACE = "GPU 0 (00000000:17:00.0): "
ENABLED = "Enabled persistence mode for GPU 00000000:17:00.0.\nAll done.\n"
REFUSED = "Unable to set persistence mode for GPU 00000000:17:00.0: Insufficient Permissions\n"


@pytest.fixture
def image(agent: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    return Image(agent, tmp_path, monkeypatch)


@pytest.mark.parametrize("word", ["event", "throttle"])
@pytest.mark.parametrize(
    ("reason", "fails"),
    [
        ("hw_slowdown", True),
        ("hw_thermal_slowdown", True),
        ("hw_power_brake_slowdown", True),
        ("sw_thermal_slowdown", True),
        ("gpu_idle", False),
        ("applications_clocks_setting", False),
        ("display_clocks_setting", False),
        ("sync_boost", False),
        ("sw_power_cap", False),
        ("board_limit", False),
        ("reliability", False),
    ],
)
def test_a_slowdown_by_heat_or_power_supply_fails(
    image: Image, word: str, reason: str, fails: bool
) -> None:
    """The reasons are those of `nvidia-smi --help-query-gpu`. Before driver 535 they are throttle reasons."""
    image.install_nvidia({f"clocks_{word}_reasons/clocks_{word}_reason_{reason}": "Active"})
    assert image.failed(ONE_A10G) == ({"gpu_temperature": PLACE + reason} if fails else {})


@pytest.mark.case(
    "NVIDIA reports a change of clocks as a slowdown: a moment later it is over, and the machine passes",
    topic="Accelerators",
    source="NVML: clocks event reasons",
)
def test_a_slowdown_that_is_over_a_moment_later_passes(image: Image, agent: ModuleType) -> None:
    image.install_nvidia({"clocks_event_reasons/clocks_event_reason_hw_slowdown": "Active"})
    sleep, began = image.clock.sleep, image.clock.now()

    def recovers(seconds: float) -> None:
        sleep(seconds)
        (image.root / "bin" / "nvidia-smi").unlink()
        image.install_nvidia({})

    image.clock.sleep = recovers  # type: ignore[method-assign]
    assert image.failed(ONE_A10G) == {}
    assert image.clock.now() - began == agent.SLOWDOWN_PAUSE


def install_without_persistence(image: Image, answer: str, *, works: bool) -> None:
    """Install a nvidia-smi that shows the mode as off until `-pm 1`, or also after it."""
    off, on = (
        nvidia_log([nvidia_gpu(0, {"persistence_mode": mode})]) for mode in ("Disabled", "Enabled")
    )
    mode = image.root / "mode"
    program = image.root / "bin" / "nvidia-smi"
    program.write_text(
        f"{first_line('-ISs')}import os, sys\n"
        f"if sys.argv[1:] == ['-pm', '1']:\n"
        f"    open({str(mode)!r}, 'a').write('asked ')\n    sys.stdout.write({answer!r})\n"
        f"elif sys.argv[1:] == ['-q', '-x']:\n"
        f"    sys.stdout.write({on!r} if {works} and os.path.exists({str(mode)!r}) else {off!r})\n"
    )
    program.chmod(0o755)


def test_persistence_mode_is_turned_on(image: Image) -> None:
    install_without_persistence(image, ENABLED, works=True)
    promise(image)
    assert tuple(image.check(ONE_A10G)["gpu_persistence"]) == ("gpu_persistence", True, "turned on")
    assert tuple(image.check(ONE_A10G)["gpu_persistence"]) == ("gpu_persistence", True, "not off")
    assert (image.root / "mode").read_text() == "asked "


def promise(image: Image) -> None:
    """Install the unit of the image recipe that turns persistence mode on."""
    unit = image.root / "etc/systemd/system/runner-gpu.service"
    unit.parent.mkdir(parents=True)
    unit.touch()


def test_persistence_mode_that_stays_off_fails_only_if_the_image_promises_it(image: Image) -> None:
    install_without_persistence(image, REFUSED, works=False)
    detail = f"off on 1 GPUs: {REFUSED.strip()}"
    assert image.failed(ONE_A10G) == {}
    assert image.check(ONE_A10G)["gpu_persistence"].detail == detail
    promise(image)
    assert image.failed(ONE_A10G) == {"gpu_persistence": detail}


def test_persistence_mode_belongs_to_an_installed_driver(image: Image, agent: ModuleType) -> None:
    install_without_persistence(image, REFUSED, works=False)
    host = agent.Host({"root": str(image.root)})
    parameters: dict[str, Any] = {"accelerator": ONE_A10G, "driver": {"vendor": "nvidia"}}
    found = agent.check_accelerators(parameters, host, image.clock)
    assert [check.name for check in found if not check.ok] == ["gpu_persistence"]


def test_the_unit_that_promises_persistence_mode_is_the_one_of_the_image_recipe(
    agent: ModuleType,
) -> None:
    recipe = Path("ami/linux/vendors/nvidia.sh").read_text()
    assert agent.PERSISTENCE_UNIT in recipe
    assert "nvidia-smi -pm 1" in Path("ami/linux/files/runner-gpu.service").read_text()
