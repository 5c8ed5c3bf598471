"""Removes what belongs to the build machine: keys, logs, and what the agent must not find.

The next boot is then a first boot: EC2Launch runs user data and the tasks that it otherwise runs once.

There is no sysprep, which takes minutes at each first boot, and loses the password of the runner's task.
"""

import shutil
from contextlib import suppress
from pathlib import Path

from library import AGENT_FOLDER, HANDOVER, STATE, StepError, need_programs, run

LAUNCH = Path("C:\\Program Files\\Amazon\\EC2Launch\\EC2Launch.exe")
DONE = Path("C:\\ProgramData\\Amazon\\EC2Launch\\state\\.run-once")
"""EC2Launch's own marker of a boot that it has handled."""

SSH = Path("C:\\ProgramData\\ssh")
KEYS = ("administrators_authorized_keys", "ssh_host_*")
TEMPORARY = Path("C:\\Windows\\Temp")
RUNNING = "script.bat"
"""Packer's script that runs these steps (the default remote_path of its provisioner windows-shell).

cmd.exe opens a batch file again for each line, so the build would fail at the next one. It has no secret.
"""

LOGS = ("Application", "Security", "System", "Windows PowerShell")
KEPT = HANDOVER.name


def before() -> None:
    """Check the manifest, and EC2Launch v2."""
    if not (AGENT_FOLDER / "image.json").is_file():
        raise StepError("the manifest is missing")
    if not LAUNCH.is_file():
        raise StepError(f"{LAUNCH} is missing: the recipe needs a base image with EC2Launch v2")
    need_programs("sc", "wevtutil")


def keys() -> list[Path]:
    """Return the files with the keys of the build machine."""
    users = Path("C:\\Users").glob("*\\.ssh\\authorized_keys")
    return [*users, *(file for pattern in KEYS for file in SSH.glob(pattern))]


def leftovers() -> list[Path]:
    """Return what the agent must not find."""
    return [*HANDOVER.iterdir(), *(one for one in STATE.iterdir() if one.name != KEPT)]


def remove(one: Path) -> None:
    """Remove a file, or a folder with everything in it. Raises OSError."""
    if one.is_dir():
        shutil.rmtree(one)
    else:
        one.unlink()


def apply() -> None:
    """Remove all that, and reset EC2Launch at last. Packer's connection stays open."""
    for one in leftovers():
        remove(one)
    # EC2Launch has enabled it for this build.
    run("sc", "config", "sshd", "start=", "disabled")
    for file in keys():
        file.unlink()
    for one in TEMPORARY.iterdir():
        # Other programs hold some of them open.
        with suppress(OSError):
            if one.name.lower() != RUNNING:
                remove(one)
    for log in LOGS:
        run("wevtutil", "clear-log", log)
    run(LAUNCH, "reset", "--clean", "--block", seconds=600)


def after() -> None:
    """Check that nothing is left."""
    for one in (*keys(), *leftovers(), DONE):
        if one.exists():
            raise StepError(f"{one} is in the image")
    if "DISABLED" not in run("sc", "qc", "sshd"):
        raise StepError("sshd starts at boot")
