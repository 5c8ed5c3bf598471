"""Twelve planted failures of a driver, through the whole agent: each is named, and none gets an assignment.

The controller's own reader makes the machine's reason of the agent's report. Where an operator reads it is in
tests/controller/test_failed_health_checks.py.

The programs of the image are stand-ins, each a real process. test_driver_packages.py has the real APT.
"""

import hashlib
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autoscaler.server.machines.requests import HealthChecksRequest
from lab.machines.gpus import BEHIND_NVSWITCH, nvidia_gpu, nvidia_log
from tests.agent.doubles import VirtualClock
from tests.agent.driver_machine import H100, PLAN, VERSION, define_release
from tests.agent.test_agent_timers import Stage
from tests.agent.test_driver_on_this_host import make_gpu

INSTALLER = b'#!/bin/sh\nexec installer "$@"\n'
MODEL = BEHIND_NVSWITCH["product_name"]
KERNEL = os.uname().release


class ShortClock(VirtualClock):
    """Real programs get `patience` real seconds in place of minutes."""

    patience = 60.0

    def real_timeout(self, seconds: float) -> float:
        return self.patience


class Installer(http.server.BaseHTTPRequestHandler):
    """Serves the driver as driver.run, and nothing else."""

    def do_GET(self) -> None:
        body = INSTALLER if self.path == "/driver.run" else b""
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


class Planted:
    """A machine with eight H100 and an image on which everything works, until a test changes it."""

    def __init__(self, agent: ModuleType, folder: Path, url: str) -> None:
        self.root = folder
        self.reason = ""
        self.stage = Stage(agent, folder)
        self.clock = ShortClock()
        self.stage.agent = agent.Agent(
            self.stage.host, self.clock, self.stage.controller, lambda _: self.stage.runner
        )
        self.programs = folder / "bin"
        self.programs.mkdir()
        loaded = folder / "sys/module/nvidia/version"
        self.header = folder / f"lib/modules/{KERNEL}/build/include/generated/utsrelease.h"
        self.header.parent.mkdir(parents=True)
        self.header.write_text(define_release(KERNEL))
        for number in range(8):
            make_gpu(folder, number, H100)
        self.show([{}] * 8)
        smi = f'case "$1" in -q) cat {folder}/log.xml ;; nvlink) cat {folder}/links ;; esac'
        links = "".join(f"GPU {number}:\n\t Link 0: 26 GB/s\n" for number in range(8))
        (folder / "links").write_text(links)
        for name in ("apt-get", "dpkg", "gcc", "make", "installer", "systemctl", "docker"):
            self.program(name, "")
        load = f"mkdir -p {loaded.parent}; echo {VERSION} > {loaded}"
        self.program("modprobe", f'case "$1" in -r) rm -f {loaded} ;; *) {load} ;; esac')
        self.program("nvidia-smi", smi)
        self.program("nvidia-ctk", "")
        self.program("docker", f"cat {folder}/log.xml")
        self.plan: dict[str, Any] = {
            **PLAN,
            "url": f"{url}/driver.run",
            "sha256": hashlib.sha256(INSTALLER).hexdigest(),
        }

    def program(self, name: str, text: str) -> None:
        (self.programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.programs / name).chmod(0o755)

    def show(self, changes: list[dict[str, str]]) -> None:
        """Let nvidia-smi show a GPU for each of these changes to a healthy one."""
        gpus = [nvidia_gpu(n, {**BEHIND_NVSWITCH, **one}) for n, one in enumerate(changes)]
        (self.root / "log.xml").write_text(nvidia_log(gpus, VERSION))

    def live(self) -> dict[str, str]:
        """Run the agent; return the details of the failed checks, by name."""
        self.stage.controller.health_checks = {
            "driver": self.plan,
            "accelerator": {"vendor": "nvidia", "count": 8, "models": [MODEL]},
        }
        self.stage.assignment()
        self.stage.runner.script = {1: {"exited": 0}}
        reason = self.stage.live()
        report = HealthChecksRequest.model_validate(self.stage.controller.bodies["health-checks"])
        self.reason = "" if report.passed else report.summary()
        failed = {one.name: one.detail for one in report.checks if not one.ok}
        assert not failed or reason == f"the health checks failed: {', '.join(failed)}"
        return failed

    @property
    def assigned(self) -> bool:
        asked = {step for _, step in self.stage.controller.asked}
        return bool(asked & {"poll", "acknowledge"}) or self.stage.runner.started_with is not None


@pytest.fixture
def planted(
    agent: ModuleType, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Planted]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Installer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    made = Planted(agent, open_folder, f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("PATH", f"{made.programs}:{os.environ['PATH']}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.systems
def test_without_a_failure_the_machine_gets_its_assignment(planted: Planted) -> None:
    assert planted.live() == {}
    assert planted.assigned


def wrong_headers(planted: Planted) -> None:
    planted.header.write_text(define_release("5.10.0-1-cloud"))


def half_installed_package(planted: Planted) -> None:
    planted.header.unlink()
    planted.program("dpkg", "echo dpkg: error processing package linux-image; exit 1")


def apt_lock(planted: Planted) -> None:
    planted.header.unlink()
    lock = "/var/lib/dpkg/lock-frontend. It is held by process 812 (apt-get)"
    planted.program("apt-get", f"echo 'E: Could not get lock {lock}'; exit 100")


def mirror_404(planted: Planted) -> None:
    planted.plan["url"] = planted.plan["url"].replace("driver.run", "lost.run")


def module_not_loadable(planted: Planted) -> None:
    planted.program("modprobe", "echo modprobe: ERROR: Exec format error; exit 1")


def smi_error_with_status_0(planted: Planted) -> None:
    planted.program("nvidia-smi", "echo Unable to determine the device handle for GPU3")


def one_gpu_missing(planted: Planted) -> None:
    planted.show([{}] * 7)


def wrong_model(planted: Planted) -> None:
    planted.show([{}] * 7 + [{"product_name": "NVIDIA H100 PCIe"}])


def ecc_errors(planted: Planted) -> None:
    planted.show([{"ecc_errors/volatile/dram_uncorrectable": "2"}] + [{}] * 7)


def fabric_manager_absent(planted: Planted) -> None:
    make_gpu(planted.root, 40, 0x22A3, 0x068000)
    planted.plan["fabric_manager"] = None


def toolkit_broken(planted: Planted) -> None:
    planted.program(
        "docker", "[ $1 = image ] || { echo could not select device driver; exit 125; }"
    )


def installer_hangs(planted: Planted) -> None:
    planted.program("installer", "exec sleep 600")
    planted.clock.patience = 0.2


@pytest.mark.systems
@pytest.mark.parametrize(
    ("plant", "name", "detail"),
    [
        (wrong_headers, "driver_headers", "headers of 5.10.0-1-cloud in "),
        (half_installed_package, "driver_packages", "dpkg: error processing package linux-image"),
        (apt_lock, "driver_packages", "E: Could not get lock /var/lib/dpkg/lock-frontend"),
        (mirror_404, "driver_download", "HTTP Error 404"),
        (module_not_loadable, "driver_module", "Exec format error"),
        (smi_error_with_status_0, "driver_query", "nvidia-smi exited with 0: Unable to determine"),
        (one_gpu_missing, "gpu_count", "7"),
        (wrong_model, "gpu_model", "NVIDIA H100 PCIe"),
        (ecc_errors, "gpu_errors", "2 uncorrectable ECC errors"),
        (fabric_manager_absent, "driver_fabric_manager", "NVSwitches need Fabric Manager"),
        (toolkit_broken, "driver_toolkit", "could not select device driver"),
        (installer_hangs, "driver_build", "sh did not end within 600 s"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_planted_failure_is_named_and_gets_no_assignment(
    planted: Planted, plant: Any, name: str, detail: str
) -> None:
    plant(planted)
    failed = planted.live()
    assert list(failed) == [name]
    assert detail in failed[name]
    assert planted.reason == f"{name}: {failed[name]}"
    assert not planted.assigned
