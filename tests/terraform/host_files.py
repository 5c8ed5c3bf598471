"""The files that the controller's launch template gives to a host, and what its systemd runs."""

import base64
import configparser
import gzip
import json
import os
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.terraform.account import FLEET, client
from tests.terraform.hosts import PROGRAM

UNIT = "gpu-runner-autoscaler"
UNITS = "/etc/systemd/system/"
HOST = "/usr/local/lib/gpu-runner-autoscaler/host.py"


def user_data(url: str) -> dict[str, Any]:
    """Return the cloud-config of the controller's launch template."""
    (version,) = client(url, "ec2").describe_launch_template_versions(
        LaunchTemplateName=f"{FLEET}-controller", Versions=["$Default"]
    )["LaunchTemplateVersions"]
    packed = base64.b64decode(version["LaunchTemplateData"]["UserData"])
    text = gzip.decompress(packed).decode()
    assert text.startswith("#cloud-config\n")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def check_host_files(url: str, folder: Path, backup_minutes: int) -> None:
    """A host runs the tested host.py: before the controller, after it, and by timers that it enables.

    `folder` is a new one, for the files.
    """
    config = user_data(url)
    files = {one["path"]: one for one in config["write_files"]}
    assert files[HOST]["content"] == PROGRAM.read_text()
    assert files[HOST]["permissions"] == "0755"

    prepare = unit(files, f"{UNIT}-host.service")
    controller = unit(files, f"{UNIT}.service")
    assert prepare["Service"]["ExecStart"] == f"{HOST} prepare"
    assert f"{UNIT}-host.service" in controller["Unit"]["Requires"].split()
    assert f"{UNIT}-host.service" in controller["Unit"]["After"].split()
    # A dash: a failed backup does not fail the controller's unit.
    assert controller["Service"]["ExecStopPost"] == f"-{HOST} backup"
    for word, every in (("backup", f"{backup_minutes}min"), ("update", "1min")):
        assert unit(files, f"{UNIT}-{word}.service")["Service"]["ExecStart"] == f"{HOST} {word}"
        timer = unit(files, f"{UNIT}-{word}.timer")["Timer"]
        assert timer == {"OnActiveSec": every, "OnUnitActiveSec": every}
    enabled = {name for command in config["runcmd"] if "enable" in command for name in command}
    assert {f"{UNIT}.service", f"{UNIT}-backup.timer", f"{UNIT}-update.timer"} <= enabled

    settings = json.loads(files["/etc/gpu-runner-autoscaler/host.json"]["content"])
    assert set(settings) == set(runpy.run_path(str(PROGRAM))["Settings"].__annotations__)
    assert settings["bucket"] in {
        one["Name"] for one in client(url, "s3").list_buckets()["Buckets"]
    }
    (group,) = client(url, "logs").describe_log_groups()["logGroups"]
    assert f"awslogs-group={group['logGroupName']} " in controller["Service"]["ExecStart"]
    assert group["logGroupName"] == f"/gpu-runner-autoscaler/{FLEET}"
    verify(files, folder)


def unit(files: dict[str, Any], name: str) -> dict[str, dict[str, str]]:
    """Return a unit's sections. Raises KeyError if the host does not get it."""
    # A backslash at the end of a line continues it (systemd.syntax).
    text = files[UNITS + name]["content"].replace("\\\n", "")
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return {section: dict(parser[section]) for section in parser.sections()}


def verify(files: dict[str, Any], root: Path) -> None:
    """`systemd-analyze verify` accepts the units, where systemd is installed."""
    if (program := shutil.which("systemd-analyze")) is None:
        return
    for path, one in files.items():
        place(root / path[1:], one["content"], int(one["permissions"], 8))
    # Stand-ins for Amazon Linux's package of Docker.
    place(root / "usr/bin/docker", "#!/bin/sh\n", 0o755)
    place(root / (UNITS[1:] + "docker.service"), "[Service]\nExecStart=/usr/bin/docker\n", 0o644)
    shutil.copytree("/usr/lib/systemd/system", root / "usr/lib/systemd/system", symlinks=True)
    names = [Path(path).name for path in files if path.startswith(UNITS)]
    done = subprocess.run(
        [program, "verify", "--man=no", "--recursive-errors=no", f"--root={root}", *names],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
    )
    assert (done.returncode, done.stderr) == (0, "")


def place(file: Path, content: str, mode: int) -> None:
    """Write a file, and the folders above it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    file.chmod(mode)
