"""The steps of the recipe `windows`, run by a Windows CPython under Wine.

Stand-ins: the installers, Git, actions/runner, EC2Launch, and those of Windows' own programs that Wine has not:
net, icacls, sc, certutil, wevtutil, schtasks. The registry, the certificate store, downloads and archives are
Wine's and Python's.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.windows.parts import Parts
from tests.windows.image_build import BUILD, BuildMachine, Publishers, publishers
from tests.windows.stock import LAUNCH, RUNNER, SSH

TEMPORARY = "C:\\Windows\\Temp"
STEPS = ["roots", "system", "programs", "runner", "account", "agent", "seal"]


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory, parts: Parts) -> Iterator[Publishers]:
    with publishers(tmp_path_factory.mktemp("publishers"), parts) as opened:
        yield opened


@pytest.fixture(scope="module")
def built(at: Publishers, tmp_path_factory: pytest.TempPathFactory) -> BuildMachine:
    """A machine on which the recipe `windows` has run."""
    machine = BuildMachine(tmp_path_factory.mktemp("built") / "disk", at)
    for name in ("script.bat", "installer.log"):
        machine.disk.path(TEMPORARY).joinpath(name).write_text("")
    done = machine.build(recipe="windows")
    assert done.returncode == 0, done.stdout
    steps = re.findall(
        r"^image-build: step (\w+): \d+ s$", done.stdout.replace("\r", ""), re.MULTILINE
    )
    assert steps == STEPS
    return machine


@pytest.fixture
def machine(at: Publishers, tmp_path: Path) -> BuildMachine:
    return BuildMachine(tmp_path / "disk", at)


def test_the_manifest_says_what_is_in_the_image(built: BuildMachine) -> None:
    manifest = json.loads(built.read("C:\\runner-agent\\image.json"))
    assert (manifest["recipe"], manifest["base_image"]) == ("windows", "stock-1")
    assert manifest["versions"]["runner"] == RUNNER
    assert manifest["versions"]["git"] == manifest["packages"]["Git"] == "2.55.0.5"
    assert list(manifest["seconds"]) == sorted(STEPS[:-1])


def test_the_runner_is_warmed_up_and_has_its_environment(built: BuildMachine) -> None:
    assert built.read("C:\\actions-runner\\warmed-up") == "warmed up\n"
    assert "RUNNER_TOOL_CACHE=C:\\hostedtoolcache" in built.read("C:\\actions-runner\\.env")
    # The agent would read the logs of the warm-up as those of the job's listener.
    assert not built.disk.path("C:\\actions-runner\\_diag").exists()


@pytest.mark.case(
    "Windows: the password of the runner's account expires after 42 days, and its task then does not start",
    topic="Images and disks",
    source="Microsoft: Maximum password age",
)
def test_only_the_runner_may_change_its_folders_and_its_password_never_expires(
    built: BuildMachine,
) -> None:
    commands = built.commands()
    system, administrators, users = "*S-1-5-18", "*S-1-5-32-544", "*S-1-5-32-545"
    both = [f"{system}:(OI)(CI)F", f"{administrators}:(OI)(CI)F"]
    # The step `seal` must see what is in the last one, and runs as an administrator.
    own = ("actions-runner", "hostedtoolcache", "ProgramData\\runner-agent\\handover")
    assert commands["rights"] == {
        **{f"C:\\{folder}": [*both, "runner:(OI)(CI)F"] for folder in own},
        "C:\\runner-agent": [*both, f"{users}:(OI)(CI)RX"],
    }
    assert commands["max_age"] == "unlimited"
    assert commands["accounts"]["runner"]["groups"] == ["Users", "Administrators"]


def test_the_task_runs_the_agents_script_and_the_password_is_in_no_file(
    built: BuildMachine,
) -> None:
    task = built.read("C:\\lab\\tasks\\actions-runner.xml")
    assert "-File C:\\ProgramData\\runner-agent\\handover\\launch.ps1<" in task
    # Task Scheduler's default ends a job after three days, and gives it a lower priority.
    assert "<ExecutionTimeLimit>PT0S<" in task
    assert "<Priority>4<" in task
    password = built.commands()["accounts"]["runner"]["password"].encode()
    drive = built.disk.prefix / "drive_c"
    places = [drive / name for name in ("runner-agent", "actions-runner", "ProgramData")]
    files = [file for place in places for file in place.rglob("*") if file.is_file()]
    assert [file for file in files if password in file.read_bytes()] == []


def test_the_registry_has_the_settings(built: BuildMachine) -> None:
    text = built.disk.prefix.joinpath("system.reg").read_text(errors="replace")
    assert re.search(r'WindowsUpdate\\\\AU\].*?"NoAutoUpdate"=dword:00000001', text, re.DOTALL)
    assert '"LongPathsEnabled"=dword:00000001' in text
    assert '"C:\\\\actions-runner\\\\_work"="0"' in text
    [path] = re.findall(r'"(?i:path)"=str\(2\):"(.*?)"', text)
    assert path.startswith("C:\\\\Program Files\\\\Git\\\\cmd;C:\\\\Program Files\\\\Git\\\\bin;")


def test_nothing_of_the_build_machine_is_left(built: BuildMachine) -> None:
    disk = built.disk
    assert list(disk.path(SSH).iterdir()) == []
    assert list(disk.path("C:\\ProgramData\\runner-agent").iterdir()) == [
        disk.path("C:\\ProgramData\\runner-agent\\handover")
    ]
    assert not disk.path(BUILD).exists()
    commands = built.commands()
    assert commands["services"] == {"sshd": "DISABLED"}
    assert commands["cleared"] == ["Application", "Security", "System", "Windows PowerShell"]


def test_of_the_temporary_files_the_running_script_alone_is_left(built: BuildMachine) -> None:
    """cmd.exe reads the next line of Packer's script from its file."""
    left = {one.name for one in built.disk.path(TEMPORARY).iterdir()}
    assert "script.bat" in left
    assert "installer.log" not in left


def test_the_next_boot_is_a_first_boot_for_ec2launch(built: BuildMachine) -> None:
    folder = built.disk.path(LAUNCH)
    assert not (folder / "state" / ".run-once").exists()
    assert not (folder / "log").exists()


def _without_updates(machine: BuildMachine) -> None:
    machine.disk.path("C:\\lab\\windows-update.pem").unlink()


def _lying(name: str) -> Callable[[BuildMachine], None]:
    return lambda machine: machine.disk.write("C:\\lab\\installs-nothing", name)


def _without_launch(machine: BuildMachine) -> None:
    machine.disk.write("C:\\runner-agent\\image.json", "{}")
    machine.disk.path("C:\\Program Files\\Amazon\\EC2Launch\\EC2Launch.exe").unlink()


def _untouched(machine: BuildMachine) -> None:
    """Plant nothing."""


def _with_a_runner(machine: BuildMachine) -> None:
    machine.disk.write("C:\\actions-runner\\run.cmd", "")


def _without_agent(machine: BuildMachine) -> None:
    (machine.disk.path(BUILD) / "agent.py").write_text("def broken(:\n")


FAILURES = {
    "Windows Update does not answer": (
        ["roots"],
        _without_updates,
        {},
        ["certutil failed, try 5 of 5", "step roots failed in 'apply'"],
    ),
    "Python does not know the publisher's root": (
        ["runner"],
        _untouched,
        {},
        ["CERTIFICATE_VERIFY_FAILED", "step runner failed in 'apply'"],
    ),
    "another file than the pinned one": (
        ["roots", "runner"],
        _untouched,
        {"RUNNER_SHA256": "0" * 64},
        ["/runner.zip has the SHA-256 ", "step runner failed in 'apply'"],
    ),
    "a mirror that does not have the file": (
        ["roots", "runner"],
        _untouched,
        {"RUNNER_URL": "https://127.0.0.1:9/runner.zip"},
        ["failed, try 5 of 5", "step runner failed in 'apply'"],
    ),
    "another version of the runner": (
        ["roots", "runner"],
        _untouched,
        {"RUNNER_VERSION": "2.339.0"},
        ["the runner says version 2.338.0, not 2.339.0", "step runner failed in 'after'"],
    ),
    "a base image with a runner": (
        ["runner"],
        _with_a_runner,
        {},
        ["the base image is not a stock image", "step runner failed in 'before'"],
    ),
    "Git's installer says that it succeeded": (
        ["roots", "programs"],
        _lying("git-installer"),
        {},
        ["git.exe does not start", "step programs failed in 'apply'"],
    ),
    "the installer of Visual C++ says that it succeeded": (
        ["roots", "programs"],
        _lying("vc-redist-installer"),
        {},
        ["the runtime of Visual C++ is not installed", "step programs failed in 'after'"],
    ),
    "an agent that this Python cannot read": (
        ["agent"],
        _without_agent,
        {},
        ["this Python cannot read", "step agent failed in 'after'"],
    ),
    "a base image without EC2Launch v2": (
        ["seal"],
        _without_launch,
        {},
        ["needs a base image with EC2Launch v2", "step seal failed in 'before'"],
    ),
    "a recipe that does not exist": (
        [],
        _untouched,
        {"IMAGE_RECIPE": "windows-tpu"},
        ["no recipe is called windows-tpu"],
    ),
    "a step that takes too long": (
        ["roots", "programs"],
        _untouched,
        {"STEP_SECONDS": "0.05"},
        ["step roots was stopped in"],
    ),
}


@pytest.mark.parametrize("planted", FAILURES)
def test_a_step_that_fails_ends_the_build_with_its_name(
    machine: BuildMachine, planted: str
) -> None:
    steps, plant, changes, expected = FAILURES[planted]
    plant(machine)
    done = machine.build(*steps, **changes)
    assert done.returncode == 1
    for text in expected:
        assert text in done.stdout
    # The image would have been made of this disk.
    assert machine.disk.path(BUILD).exists()


LEAVES_A_CHILD = """
import subprocess, sys
from library import StepError

WAITS = "import time; print('started', flush=True); time.sleep(1e6)"

def before():
    words, flags = [sys.executable, "-c", WAITS], {flags}
    child = subprocess.Popen(words, stdout=subprocess.PIPE, creationflags=flags)
    started = not flags and child.stdout.readline()
    raise StepError(f"a child is there, {started}")
"""
CREATE_SUSPENDED = 4


@pytest.mark.parametrize("flags", [0, CREATE_SUSPENDED])
def test_a_build_that_fails_ends_what_its_steps_started(machine: BuildMachine, flags: int) -> None:
    """Packer would wait for the child, which has the connection as its standard error.

    A child that CreateProcess has made and not started yet is suspended. Nothing would ever start it.
    """
    step = machine.disk.path(BUILD) / "steps" / "leaves.py"
    step.write_text(LEAVES_A_CHILD.replace("{flags}", str(flags)))
    done = machine.build("leaves")
    assert "error: a child is there, " in done.stdout
    assert done.returncode == 1
