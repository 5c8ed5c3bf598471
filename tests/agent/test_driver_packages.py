"""The packages for a driver: real APT and dpkg, a repository on this host, and a throw-away root."""

import fcntl
import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.agent.doubles import VirtualClock

KERNEL = os.uname().release
HEADERS = f"linux-headers-{KERNEL}"
RELEASE = f'#define UTS_RELEASE "{KERNEL}"\n'


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Write nothing."""


class Distribution:
    """A root with dpkg's database, and a repository with packages that its APT knows."""

    def __init__(self, folder: Path, url: str) -> None:
        self.root = folder / "root"
        self.repository = folder / "repository"
        for part in ("etc/apt/apt.conf.d", "etc/apt/preferences.d", "etc/apt/sources.list.d",
                     "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/apt/lists/partial",
                     "var/cache/apt/archives/partial", "var/log/apt", "usr/bin"):  # fmt: skip
            (self.root / part).mkdir(parents=True)
        self.status.touch()
        listed = self.root / "etc/apt/sources.list"
        listed.write_text(f"deb [trusted=yes] {url} ./\n")
        self.config = folder / "apt.conf"
        self.config.write_text(
            f'Dir "{self.root}/";\nDir::State::status "{self.status}";\n'
            f'DPkg::Options {{ "--root={self.root}"; "--force-not-root"; "--log=/dev/null"; }};\n'
            'APT::Architecture "amd64";\nAPT::Sandbox::User "root";\nDPkg::Use-Pty "false";\n'
        )

    @property
    def status(self) -> Path:
        return self.root / "var/lib/dpkg/status"

    def publish(self, name: str, files: dict[str, str]) -> None:
        """Build a package with dpkg-deb, and write the repository's list anew."""
        tree = self.repository.parent / "trees" / name
        for path, text in files.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text)
            (tree / path).chmod(0o755)
        control = tree / "DEBIAN" / "control"
        control.parent.mkdir(parents=True)
        control.write_text(
            f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: test <t@example.com>\n"
            "Description: for a test\n"
        )
        self.repository.mkdir(exist_ok=True)
        target = str(self.repository / f"{name}.deb")
        run("dpkg-deb", "--build", "-Znone", str(tree), target)

    def index(self) -> None:
        """Write the repository's list of packages, as dpkg-scanpackages(1) does."""
        entries = []
        for deb in sorted(self.repository.glob("*.deb")):
            sha256 = run("sha256sum", str(deb)).split()[0]
            control = run("dpkg-deb", "--field", str(deb)).strip()
            size = deb.stat().st_size
            entries.append(f"{control}\nFilename: ./{deb.name}\nSize: {size}\nSHA256: {sha256}\n")
        (self.repository / "Packages").write_text("\n".join(entries))

    def publish_all(self, release: str = RELEASE) -> None:
        """Publish everything that the driver needs."""
        header = f"lib/modules/{KERNEL}/build/include/generated/utsrelease.h"
        self.publish(HEADERS, {header: release})
        for name in ("gcc", "make"):
            self.publish(name, {f"usr/bin/{name}": "#!/bin/sh\n"})
        self.publish("libc6-dev", {})
        self.index()


def run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Distribution]:
    (tmp_path / "repository").mkdir()
    handler = partial(QuietHandler, directory=str(tmp_path / "repository"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    made = Distribution(tmp_path, f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("APT_CONFIG", str(made.config))
    monkeypatch.setenv("DPKG_ROOT", str(made.root))
    monkeypatch.setenv("DPKG_ADMINDIR", str(made.root / "var/lib/dpkg"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def install(agent: ModuleType, distribution: Distribution) -> Any:
    """Install the build tools; return the InstallFailure, or None."""
    host = agent.Host({"root": str(distribution.root)})
    machine = agent.LocalMachine(host, VirtualClock())

    def install() -> Any:
        try:
            agent.Packages(machine, machine.now() + 600.0).install_build_tools()
        except agent.InstallFailure as failure:
            return failure
        return None

    return install


@pytest.mark.systems
def test_the_headers_of_the_running_kernel_are_installed(
    distribution: Distribution, install: Any
) -> None:
    distribution.publish_all()
    assert install() is None
    build = distribution.root / f"lib/modules/{KERNEL}/build"
    assert (build / "include/generated/utsrelease.h").read_text() == RELEASE
    assert (distribution.root / "usr/bin/gcc").exists()
    log = (distribution.root / "var/log/runner-agent/install.log").read_text()
    assert "--- dpkg --configure -a\n" in log
    assert f"Setting up {HEADERS}" in log


@pytest.mark.systems
def test_a_package_that_the_mirror_does_not_have_is_named(
    distribution: Distribution, install: Any
) -> None:
    distribution.publish_all()
    (distribution.repository / f"{HEADERS}.deb").unlink()
    failure = install()
    assert failure.name == "driver_packages"
    assert str(failure).startswith("E: Failed to fetch http://127.0.0.1:")
    assert "404" in str(failure)


@pytest.mark.systems
def test_headers_that_no_mirror_lists_are_named(distribution: Distribution, install: Any) -> None:
    """A stock image is older than the mirror, which keeps the headers of the newest kernel only."""
    distribution.publish("gcc", {})
    distribution.index()
    failure = install()
    assert failure.name == "driver_packages"
    assert str(failure) == f"E: Unable to locate package {HEADERS}"


@pytest.mark.systems
def test_a_lock_that_another_program_keeps_is_named(
    distribution: Distribution, install: Any
) -> None:
    distribution.publish_all()
    with (distribution.root / "var/lib/dpkg/lock-frontend").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        failure = install()
    assert failure.name == "driver_packages"
    assert "lock" in str(failure)
    assert str(os.getpid()) in str(failure)


@pytest.mark.systems
def test_a_package_that_was_half_installed_is_finished_first(
    distribution: Distribution, install: Any
) -> None:
    """The machine was rebooted while a package was configured."""
    distribution.publish_all()
    distribution.status.write_text(
        "Package: base-files\nStatus: install ok half-configured\nPriority: required\n"
        "Section: admin\nMaintainer: test <t@example.com>\nArchitecture: all\nVersion: 1\n"
        "Config-Version: 1\nDescription: for a test\n"
    )
    (distribution.root / "var/lib/dpkg/info/base-files.list").touch()
    assert install() is None
    assert "half-configured" not in distribution.status.read_text()


@pytest.mark.systems
def test_a_package_that_cannot_be_finished_is_named(
    distribution: Distribution, install: Any
) -> None:
    distribution.publish_all()
    distribution.status.write_text(
        "Package: broken\nStatus: install reinstreq half-installed\nPriority: optional\n"
        "Section: admin\nMaintainer: test <t@example.com>\nArchitecture: all\nVersion: 1\n"
        "Description: for a test\n"
    )
    (distribution.root / "var/lib/dpkg/info/broken.list").touch()
    failure = install()
    assert failure.name == "driver_packages"
    assert "broken" in str(failure)


def test_every_program_of_these_tests_is_installed() -> None:
    needed = ("apt-get", "dpkg", "dpkg-deb", "sha256sum")
    missing = [name for name in needed if not shutil.which(name)]
    assert not missing, f"apt-get install {' '.join(missing)}"
