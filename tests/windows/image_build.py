"""Runs the steps of an image's recipe as Packer does, in the Windows CPython of a build machine's disk."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscaler.app.agent_file import build_agent
from lab.windows.disk import WindowsDisk
from lab.windows.parts import Parts, wine, wine_environment
from lab.windows.processes import shut_down
from tests.agent.certificates import make_certificate
from tests.ami.repository import served, sha256
from tests.patience import PATIENCE
from tests.windows.stock import DRIVER, Downloads, make_downloads, make_stock

AMI = Path(__file__).parents[2] / "ami" / "windows"
BUILD = "C:\\image-build"


@dataclass(frozen=True)
class Publishers:
    """What builds download, at a URL with a certificate that only Windows Update's roots know."""

    parts: Parts
    url: str
    downloads: Downloads
    certificate: str


@contextmanager
def publishers(folder: Path, parts: Parts) -> Iterator[Publishers]:
    """Serve everything that builds download."""
    files = folder / "server.pem", folder / "server.key"
    for file, content in zip(files, make_certificate("127.0.0.1"), strict=True):
        file.write_bytes(content)
    downloads = make_downloads(folder / "served", parts)
    with served(downloads.folder, *files) as url:
        yield Publishers(parts, url, downloads, files[0].read_text())


class BuildMachine:
    """A stock machine with the uploaded recipes. A test plants its faults on `disk`."""

    def __init__(self, folder: Path, at: Publishers) -> None:
        self._at = at
        self.disk: WindowsDisk = make_stock(folder, at.parts, at.certificate)
        uploaded = self.disk.path(BUILD)
        shutil.copytree(AMI, uploaded)
        (uploaded / "agent.py").write_bytes(build_agent())
        plan: dict[str, Any] = {"vendor": "nvidia", "version": DRIVER, "budget_s": 900}
        plan |= {"url": f"{at.url}/driver.exe", "sha256": at.downloads.sums["driver.exe"]}
        (uploaded / "driver.json").write_text(json.dumps(plan))

    def build(
        self, *steps: str, recipe: str = "planted", **changes: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a recipe, or these steps. `changes` are variables that Packer would pass otherwise."""
        if steps:
            (self.disk.path(BUILD) / "recipes" / recipe).write_text("\n".join(steps))
        at, agent = self._at, self.disk.path(BUILD) / "agent.py"
        values = {name.upper(): text for name, text in at.downloads.values(at.url).items()}
        values |= {"IMAGE_RECIPE": recipe, "BASE_IMAGE": "stock-1", "AGENT_SHA256": sha256(agent)}
        values |= {"RETRY_DELAY": "0.01", **changes}
        done = self._run(f"{BUILD}\\provision.py", values)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode())

    def _run(self, script: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
        python = "C:\\runner-agent\\python\\python.exe"
        try:
            return subprocess.run(
                [str(wine()), python, "-I", "-B", script],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
                # Every process of the build has the pipe (Wine hands its descriptor 2 to each child).
                timeout=PATIENCE,
                env={**wine_environment(self.disk.prefix), **variables},
                cwd=self.disk.path("C:\\lab"),
            )
        finally:
            shut_down(self.disk.prefix)

    def read(self, path: str) -> str:
        """Return the text of a file on the disk."""
        return self.disk.path(path).read_text()

    def commands(self) -> dict[str, Any]:
        """Return what Windows' own programs did."""
        return dict(json.loads(self.read("C:\\lab\\administration.json")))
