"""The stock image of Windows, and what the build of an image downloads: stand-ins, served by the test."""

import hashlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab.windows.disk import WindowsDisk, make_prefix, runner_files
from lab.windows.launcher import launcher
from lab.windows.parts import Parts

SHIPPED = Path(__file__).parents[2] / "autoscaler" / "images" / "versions.yaml"
RUNNER, GIT, PYTHON = "2.338.0", "2.55.0.5", "3.13.5"
DRIVER = "582.78"
LAUNCH = "C:\\ProgramData\\Amazon\\EC2Launch"
SSH = "C:\\ProgramData\\ssh"
T4 = (
    "PCI\\VEN_10DE&DEV_1EB8&SUBSYS_12A210DE&REV_A1\\4&5D18F2DF&0&00F0 PCI\\VEN_10DE&DEV_1EB8&REV_A1 "
    "PCI\\VEN_10DE&DEV_1EB8 PCI\\VEN_10DE&CC_030200 PCI\\VEN_10DE&CC_0302 PCI\\VEN_10DE PCI\\CC_030200"
)
ANSWER = (
    f"<nvidia_smi_log><driver_version>{DRIVER}</driver_version>"
    '<gpu id="0"><product_name>Tesla T4</product_name></gpu></nvidia_smi_log>'
)


def make_stock(prefix: Path, parts: Parts, roots: str) -> WindowsDisk:
    """Create the disk of a build machine after EC2Launch has handled its boot.

    `roots` are the certificates (PEM) that Windows Update has.
    """
    disk = make_prefix(prefix, parts)
    windows = disk.prefix / "drive_c" / "windows"
    windows.mkdir()
    for one in (parts.prefix / "drive_c" / "windows").iterdir():
        # Only this folder is written to.
        if one.name != "temp":
            (windows / one.name).symlink_to(one)
    (windows / "temp").mkdir()
    # Programs of Linux, such as the SSH server, need the case that Packer writes.
    (windows / "Temp").symlink_to("temp")
    (windows.parent / "Windows").symlink_to("windows")
    files: dict[str, str | bytes] = {
        "C:\\Program Files\\Amazon\\EC2Launch\\EC2Launch.exe": launcher(
            parts, "python", "installer"
        ),
        f"{LAUNCH}\\state\\.run-once": "",
        f"{LAUNCH}\\log\\agent.log": "booted",
        f"{SSH}\\administrators_authorized_keys": "ssh-rsa of the build",
        f"{SSH}\\ssh_host_ed25519_key": "a key",
        "C:\\lab\\windows-update.pem": roots,
        "C:\\lab\\devices": T4,
        "C:\\lab\\installer": "installs 0",
        "C:\\lab\\answer": ANSWER,
    }
    for path, content in files.items():
        disk.write(path, content)
    return disk


@dataclass(frozen=True)
class Downloads:
    """What publishers serve, in a folder: the checksum of each file by its name."""

    folder: Path
    sums: dict[str, str]

    def values(self, url: str) -> dict[str, str]:
        """Return the variables of the template that name files, served at this URL."""
        names = {"runner": "runner.zip", "git": "git.exe", "vc_redist": "vc-redist.exe"}
        found = {"runner_version": RUNNER, "git_version": GIT, "python_version": PYTHON}
        for variable, file in {**names, "python": "python.exe"}.items():
            found[f"{variable}_url"] = f"{url}/{file}"
            found[f"{variable}_sha256"] = self.sums[file]
        return found

    def versions(self, url: str) -> str:
        """Return the shipped versions.yaml with these files."""
        content: dict[str, Any] = yaml.safe_load(SHIPPED.read_text())
        found = {
            name: {"url": f"{url}/{name}", "sha256": sha256} for name, sha256 in self.sums.items()
        }
        content["runner"]["files"]["windows-x64"] = found["runner.zip"]
        for entry, name in (
            ("git-windows", "git.exe"),
            ("vc-redist", "vc-redist.exe"),
            ("python-windows", "python.exe"),
            ("nvidia-driver-windows", "driver.exe"),
        ):
            content["programs"][entry]["files"]["windows-x64"] = found[name]
        content["programs"]["python-windows"]["version"] = PYTHON
        return json.dumps(content, default=str)


def make_downloads(folder: Path, parts: Parts) -> Downloads:
    """Write everything that a build downloads."""
    folder.mkdir()
    installer = launcher(parts, "python", "installer")
    contents = {
        "git.exe": installer,
        "vc-redist.exe": installer,
        "python.exe": b"Python is installed: it runs the stand-ins.",
        "driver.exe": launcher(parts, "python", "nvidia_installer"),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    with zipfile.ZipFile(folder / "runner.zip", "w") as archive:
        for path, content in runner_files(parts, RUNNER).items():
            archive.writestr(path, content)
    sums = {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in folder.iterdir()}
    return Downloads(folder, sums)
