"""The laboratory's two commands: the demo, and the controller on a faster clock."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import lab.__main__ as demo
from autoscaler.controller.system import SystemClock
from autoscaler.model.catalogue import OperatingSystem
from lab import serve
from lab.demo import DemoOptions, fitting_scale
from lab.replicas.takeovers import Faults
from lab.verdict import Fault


class Given:
    """Stands in for the program that a command calls, and keeps the arguments."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.path: Path | None = None
        self.options: dict[str, Any] = {}

    def __call__(self, path: Path | None = None, **options: Any) -> int:
        self.path, self.options = path, options
        return self.status


def run(*arguments: str | Path) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(demo.command, [str(a) for a in arguments])


def test_the_demo_gets_its_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown = Given()
    monkeypatch.setattr("lab.demo.main", shown)
    result = run()
    assert (result.exit_code, result.stdout) == (0, "Loading the laboratory ...\n")
    assert shown.options["options"] == DemoOptions()
    price_of = shown.options["price_of"]
    assert price_of("g5.xlarge", OperatingSystem.WINDOWS) > price_of(
        "g5.xlarge", OperatingSystem.LINUX
    )
    shown.status = 1
    folders = ("--push", tmp_path / "push.yaml", "--keep", tmp_path)
    assert run("--scale", "500", "--lose-job", *folders).exit_code == 1
    assert shown.options["options"] == DemoOptions(
        scale=500.0, fault=Fault.LOST_JOB, push=tmp_path / "push.yaml", keep=tmp_path
    )
    run("--leak-machine")
    assert shown.options["options"] == DemoOptions(fault=Fault.LEAKED_MACHINE)
    run("--stay")
    assert shown.options["options"] == DemoOptions(stay=True)
    run("--replicas")
    assert shown.options["options"] == DemoOptions(replicas=Faults())


@pytest.mark.parametrize(("slowness", "scale"), [(1.0, 80.0), (4.0, 20.0), (100.0, 8.0)])
def test_the_clock_of_the_demo_runs_as_fast_as_a_busy_host_keeps_up(
    slowness: float, scale: float
) -> None:
    assert fitting_scale(slowness) == scale


def test_the_demo_on_kubernetes_first_builds_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown, built = Given(), Given()
    monkeypatch.setattr("lab.demo.main", shown)
    monkeypatch.setattr("lab.kubernetes.build.main", built)
    assert run("--kubernetes").exit_code == 0
    assert shown.options["options"] == DemoOptions(kubernetes=True)
    shown.options, built.status = {}, 1
    assert run("--kubernetes").exit_code == 1
    assert shown.options == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--scale", "0"), "'--scale': it must be at least 1, not '0'."),
        (("--scale", "abc"), "'--scale': it must be a number, not 'abc'."),
        (("--scale", "nan"), "'--scale': it must be at most 100000, not 'nan'."),
        (("--lose-job", "--leak-machine"), "use either --lose-job or --leak-machine, not both"),
    ],
)
def test_the_demo_refuses_wrong_options(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_the_controller_gets_the_clock_of_the_laboratory(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Given(status=3)
    monkeypatch.setattr(serve, "serve", served)
    options = ["-c", "fleet.yaml", "--clock-scale", "60", "--clock-epoch", "12.5"]
    assert CliRunner().invoke(serve.command, options).exit_code == 3
    assert served.path == Path("fleet.yaml")
    clock = served.options["clock"]
    assert isinstance(clock, SystemClock)
    assert (clock.scale, clock.epoch) == (60.0, 12.5)
