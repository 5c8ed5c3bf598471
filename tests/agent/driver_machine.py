"""A machine without hardware, for tests of the driver's installation: scripted programs, files in memory."""

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import pytest

from lab.machines.gpus import nvidia_gpu, nvidia_log

VERSION = "580.178.04"
KERNEL = "6.1.0-26-amd64"
HEADER = f"/lib/modules/{KERNEL}/build/include/generated/utsrelease.h"
LOADED = "/sys/module/nvidia/version"
A10G, V100, M60, K80, H100, B200 = 0x2237, 0x1DB1, 0x13F2, 0x102D, 0x2330, 0x2901
SHA256 = "0" * 64

PLAN: dict[str, Any] = {
    "vendor": "nvidia",
    "version": VERSION,
    "url": f"https://us.download.nvidia.com/NVIDIA-Linux-x86_64-{VERSION}.run",
    "sha256": SHA256,
    "fabric_manager": {"url": "https://developer.download.nvidia.com/fm.tar.xz", "sha256": SHA256},
    "toolkit": {
        "version": "1.20.0",
        "key": {"url": "https://nvidia.github.io/libnvidia-container/gpgkey", "sha256": SHA256},
        "image": "public.ecr.aws/docker/library/ubuntu:24.04@sha256:" + SHA256,
    },
    "budget_s": 2430,
}


def define_release(release: str) -> str:
    return f'#define UTS_RELEASE "{release}"\n'


class FakeMachine:
    """A machine with an image on which everything goes well. See `answers` and `takes` for what does not.

    `release` is that of its kernel, and `packages` has those that only some archives have.
    `answers` has a function for the beginning of a command: it returns (status, text). `takes` has the
    seconds of such a command, or of the download of a URL.
    """

    def __init__(self, agent: ModuleType, gpus: Sequence[int] = (A10G,), switches: int = 0) -> None:
        self.agent = agent
        self.switches = switches
        self.time = 0.0
        self.ran: list[str] = []
        self.fetched: list[str] = []
        self.variables: dict[str, dict[str, str]] = {}
        self.files = {"/proc/version": "Linux version 6 (gcc-12 (Debian 12.2.0-14) 12.2.0, GNU"}
        self.programs = {"apt-get", "gcc", "gcc-12", "make"}
        self.space = 40.0
        self.gpus = gpus
        self.release = KERNEL
        self.packages: set[str] = set()
        self.log = nvidia_log([nvidia_gpu(n) for n, _ in enumerate(gpus)], VERSION)
        self.answers: dict[str, Callable[[], tuple[int, str]]] = {}
        self.takes: dict[str, float] = {}
        self.container_images: set[str] = set()

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def run(self, argv: Sequence[str], timeout: float, **variables: str) -> Any:
        command = " ".join(argv)
        self.ran.append(command)
        self.variables[argv[0]] = variables
        takes = next((s for begin, s in self.takes.items() if command.startswith(begin)), 1.0)
        if takes > timeout:
            self.time += timeout
            raise self.agent.NoUsableAnswer(f"{argv[0]} did not end within {timeout:.0f} s")
        self.time += takes
        for begin, answer in self.answers.items():
            if command.startswith(begin):
                return self.agent.Output(*answer())
        if command.startswith("apt-cache show ") and argv[-1] not in self.packages:
            return self.agent.Output(100, f"E: Unable to locate package {argv[-1]}\n")
        if command.startswith("docker image inspect ") and argv[-1] not in self.container_images:
            return self.agent.Output(1, f"[]\nError: No such image: {argv[-1]}\n")
        return self.agent.Output(0, self._usual(command))

    def _usual(self, command: str) -> str:
        if "linux-headers" in command or "kernel-devel" in command:
            header = HEADER.replace(KERNEL, self.release)
            self.files[header] = define_release(self.release)
            self.programs |= {"gcc", "make"}
        if command == "modprobe nvidia":
            self.files[LOADED] = VERSION + "\n"
        if "nvidia-container-toolkit" in command:
            self.programs.add("nvidia-ctk")
        if command.startswith("docker pull "):
            self.container_images.add(command.split()[-1])
        return self.log if command.endswith("nvidia-smi -q -x") else ""

    def fetch(self, file: Any, path: str, timeout: float, *, name: str) -> None:
        self.fetched.append(file.url)
        takes = self.takes.get(file.url, 0.0)
        self.time += min(takes, timeout)
        if takes > timeout:
            why = f"{file.url}: not complete after {timeout:.0f} s"
            raise self.agent.InstallFailure(name, why)
        self.files[path] = ""

    def path(self, path: str) -> str:
        return path

    def find(self, *names: str) -> str:
        return next((name for name in names if name in self.programs), "")

    def exists(self, path: str) -> bool:
        return path in self.files

    def read(self, path: str) -> str:
        return self.files.get(path, "")

    def write(self, path: str, text: str) -> None:
        self.files[path] = text

    def devices(self) -> list[Any]:
        found = [
            self.agent.PciDevice(f"0000:0{n}:00.0", 0x10DE, device, 0x030200)
            for n, device in enumerate(self.gpus)
        ]
        bridge = self.agent.PciDevice("0000:90:00.0", 0x10DE, 0x22A3, 0x068000)
        return [self.agent.PciDevice("0000:00:00.0", 0x8086, 0x1237, 0x060000), *found] + [
            bridge
        ] * self.switches

    def kernel(self) -> str:
        return self.release

    def free(self) -> float:
        return float(self.space)


def refusal(agent: ModuleType, plan: Mapping[str, Any]) -> tuple[str, str]:
    """Return the failed check and its detail for a plan that the agent does not accept."""
    with pytest.raises(agent.InstallFailure) as refused:
        agent.read_driver_plan(plan)
    return refused.value.name, str(refused.value)
