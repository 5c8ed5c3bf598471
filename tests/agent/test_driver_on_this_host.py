"""The driver's installation on a host: its processes, downloads and devices, and the whole on real files."""

import errno
import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autoscaler.app.agent_file import build_agent
from lab.machines.gpus import nvidia_gpu, nvidia_log
from tests.agent.doubles import VirtualClock
from tests.agent.driver_machine import A10G, PLAN, VERSION, define_release

FILE = b"#!/bin/sh\necho building\n"
SHA256 = hashlib.sha256(FILE).hexdigest()


class Publisher(http.server.BaseHTTPRequestHandler):
    """Serves FILE under any name but /lost."""

    def do_GET(self) -> None:
        lost = self.path == "/lost"
        self.send_response(404 if lost else 200)
        self.send_header("Content-Length", str(0 if lost else len(FILE)))
        self.end_headers()
        if not lost:
            self.wfile.write(FILE)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Publisher)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def machine(agent: ModuleType, tmp_path: Path) -> Any:
    return agent.LocalMachine(agent.Host({"root": str(tmp_path)}), VirtualClock())


def test_a_program_that_hangs_is_ended_with_its_children(agent: ModuleType, tmp_path: Path) -> None:
    """dpkg's scripts and NVIDIA's installer start others, which would keep their locks."""
    machine = agent.LocalMachine(agent.Host({"root": str(tmp_path)}), agent.Clock(1000.0))
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    script = f"echo begun; sleep 600 > {tmp_path}/pipe & wait"
    with pytest.raises(agent.NoUsableAnswer, match=r"^sh did not end within 600 s$"):
        machine.run(["sh", "-c", script], 600.0)
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""  # comes when the child's end of the pipe is closed
    os.close(reader)
    assert "begun" in (tmp_path / "var/log/runner-agent/install.log").read_text()


def test_the_log_keeps_what_programs_write_and_only_root_can_read_it(
    machine: Any, tmp_path: Path
) -> None:
    first = machine.run(["sh", "-c", "echo one; echo two >&2; exit 3"], 60.0)
    second = machine.run(["sh", "-c", "echo $CC $DEBIAN_FRONTEND"], 60.0, CC="gcc-12")
    assert (first.status, first.text) == (3, "one\ntwo\n")
    assert second.text == "gcc-12 noninteractive\n"
    log = tmp_path / "var/log/runner-agent/install.log"
    assert log.read_text().startswith("--- sh -c echo one; echo two >&2; exit 3\none\ntwo\n--- sh")
    assert log.parent.stat().st_mode & 0o777 == 0o700


def test_a_program_that_the_image_lacks_is_named(agent: ModuleType, machine: Any) -> None:
    with pytest.raises(agent.NotInstalled, match="nvidia-ctk is not installed"):
        machine.run(["nvidia-ctk"], 60.0)


def test_a_program_that_does_not_start_is_named(
    agent: ModuleType, machine: Any, tmp_path: Path
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("no program")
    program.chmod(0o755)
    with pytest.raises(agent.NoUsableAnswer) as caught:
        machine.run([str(program), "-q", "-x"], 60.0)
    assert str(caught.value) == f"{program} does not start: {os.strerror(errno.ENOEXEC)}"


def test_a_log_that_cannot_be_written_is_reported(agent: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "var").touch()
    host = agent.Host({"root": str(tmp_path)})
    stages: list[str] = []
    found = agent.install_wanted_driver({"driver": PLAN}, host, VirtualClock(), stages.append)
    detail = f"{host.install_log}: {os.strerror(errno.ENOTDIR)}"
    assert [tuple(one) for one in found] == [("driver_space", False, detail)]
    assert stages == []


def test_a_file_is_downloaded_once(
    agent: ModuleType, machine: Any, publisher: str, tmp_path: Path
) -> None:
    machine.fetch(
        agent.RemoteFile(f"{publisher}/driver.run", SHA256),
        "/var/driver.run",
        60.0,
        name="driver_download",
    )
    assert (tmp_path / "var/driver.run").read_bytes() == FILE
    machine.fetch(
        agent.RemoteFile("http://127.0.0.1:1/driver.run", SHA256),
        "/var/driver.run",
        60.0,
        name="driver_download",
    )


@pytest.mark.parametrize(
    ("name", "sha256", "why"),
    [
        ("lost", SHA256, "HTTP Error 404: Not Found"),
        ("driver.run", "0" * 64, f"its SHA-256 is {SHA256}, and {'0' * 64} is wanted"),
    ],
)
def test_a_download_that_fails_is_named(
    agent: ModuleType,
    machine: Any,
    publisher: str,
    tmp_path: Path,
    name: str,
    sha256: str,
    why: str,
) -> None:
    with pytest.raises(agent.InstallFailure) as failed:
        machine.fetch(
            agent.RemoteFile(f"{publisher}/{name}", sha256),
            "/var/driver.run",
            60.0,
            name="driver_download",
        )
    assert failed.value.name == "driver_download"
    assert str(failed.value) == f"{publisher}/{name}: {why}"
    assert not (tmp_path / "var/driver.run").exists()


def make_gpu(root: Path, number: int, device: int, kind: int = 0x030200) -> None:
    folder = root / f"sys/bus/pci/devices/0000:00:{number:02x}.0"
    folder.mkdir(parents=True)
    for name, value in (("vendor", 0x10DE), ("device", device), ("class", kind)):
        (folder / name).write_text(f"0x{value:04x}\n")


def test_pci_devices_are_read_from_sysfs(agent: ModuleType, machine: Any, tmp_path: Path) -> None:
    assert machine.devices() == []
    make_gpu(tmp_path, 30, A10G)
    make_gpu(tmp_path, 31, 0x22A3, 0x068000)
    gpu, switch = machine.devices()
    assert gpu == ("0000:00:1e.0", 0x10DE, A10G, 0x030200)
    assert agent.nvidia_gpus([gpu, switch]) == [gpu]
    assert agent.has_nvswitch([gpu, switch])
    assert not agent.has_nvswitch([gpu])


@pytest.mark.systems
def test_an_image_build_installs_a_driver_with_the_agents_own_file(
    publisher: str, tmp_path: Path
) -> None:
    """`agent.py install-driver`: the file that machines run, with programs that do as the real ones."""
    root, programs = tmp_path / "root", tmp_path / "bin"
    programs.mkdir()
    release = os.uname().release
    header = root / f"lib/modules/{release}/build/include/generated/utsrelease.h"
    header.parent.mkdir(parents=True)
    header.write_text(define_release(release))
    make_gpu(root, 30, A10G)
    loaded = root / "sys/module/nvidia/version"
    log = tmp_path / "log.xml"
    log.write_text(nvidia_log([nvidia_gpu(0)], VERSION))
    for name, text in {
        "gcc": "",
        "make": "",
        "modprobe": f"mkdir -p {loaded.parent}; echo {VERSION} > {loaded}",
        "nvidia-smi": f'if [ "$1" = -q ]; then cat {log}; fi',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    plan = {**PLAN, "url": f"{publisher}/NVIDIA.run", "sha256": SHA256, "toolkit": None}
    for name, value in (("plan.json", plan), ("host.json", {"root": str(root)})):
        (tmp_path / name).write_text(json.dumps(value))
    (tmp_path / "agent.py").write_bytes(build_agent())
    words = ["agent.py", "install-driver", "plan.json", "--host-file", "host.json"]
    done = subprocess.run(
        [sys.executable, "-I", "-S", *words],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": f"{programs}:{os.environ['PATH']}", "no_proxy": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr
    assert "driver_build" in done.stderr + done.stdout
    kept = (root / "var/log/runner-agent/install.log").read_text()
    assert f"{root}/var/lib/runner-agent/driver/NVIDIA.run --silent --no-drm" in kept
    assert "building" in kept


@pytest.mark.parametrize("words", [[], ["lost.json"], ["plan.json", "--no-such-option"]])
def test_a_mistake_does_not_power_off_the_build_of_an_image(
    agent: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["agent.py", "install-driver", *words])
    assert agent.main() in (1, 2)
