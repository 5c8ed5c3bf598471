"""The installation of AMD's driver: what a good machine does, and what each planted failure is called.

The answer of `amd-smi static --asic --json` is written from public scripts that read it, not recorded.
"""

import json
from types import ModuleType
from typing import Any

import pytest

from lab.machines.gpus import AmdGpu, rocminfo
from tests.agent.driver_machine import (
    HEADER,
    KERNEL,
    SHA256,
    FakeMachine,
    define_release,
    refusal,
)

LOADED = "/sys/module/amdgpu/version"
PACKAGE = "1:6.16.13.30300300-2327507.24.04"
"""The version of amdgpu-dkms in AMD's repository of release 30.30.3."""
ROCM = "/opt/rocm/.info/version"
ROCMINFO, AMD_SMI = "/opt/rocm/bin/rocminfo", "/opt/rocm/bin/amd-smi"
PLAN: dict[str, Any] = {
    "vendor": "amd",
    "version": "30.30.3",
    "rocm": "7.2.4",
    "newest_kernel": "6.17",
    "key": {"url": "https://repo.radeon.com/rocm/rocm.gpg.key", "sha256": SHA256},
    "budget_s": 2430,
}


def asics(*architectures: str) -> str:
    return json.dumps([{"asic": {"target_graphics_version": one}} for one in architectures])


class AmdMachine(FakeMachine):
    """A stock Ubuntu with two MI300X, on which everything goes well."""

    def __init__(self, agent: ModuleType) -> None:
        super().__init__(agent, ())
        self.files["/etc/os-release"] = "ID=ubuntu\nVERSION_CODENAME=noble\n"
        self.answers[ROCMINFO] = lambda: (0, rocminfo([AmdGpu()] * 2))
        self.answers[AMD_SMI] = lambda: (0, asics("gfx942", "gfx942"))

    def _usual(self, command: str) -> str:
        if command == "modprobe amdgpu":
            self.files[LOADED] = "6.16.13\n"
        if "install rocm-hip-runtime" in command:
            self.files[ROCM] = "7.2.4-93\n"
        if command == "dpkg-query -W -f ${Version} amdgpu-dkms":
            return PACKAGE
        return super()._usual(command)

    def devices(self) -> list[Any]:
        gpu = (0x1002, 0x74A1, 0x120000)
        return [self.agent.PciDevice(f"0000:0{n}:00.0", *gpu) for n in (1, 2)]


def install(agent: ModuleType, machine: Any, plan: dict[str, Any] = PLAN) -> tuple[Any, list[str]]:
    stages: list[str] = []
    return agent.install_driver(agent.read_driver_plan(plan), machine, stages.append), stages


def test_a_stock_machine_gets_the_module_and_the_runtime(agent: ModuleType) -> None:
    machine = AmdMachine(agent)
    check, stages = install(agent, machine)
    assert check.ok, check
    assert check.detail.startswith("amdgpu 30.30.3, ROCm 7.2.4, gfx942, try 1, ")
    assert stages == ["driver_checks", "driver_packages", "driver_build", "driver_load",
                      "driver_packages"]  # fmt: skip
    assert machine.files["/etc/apt/sources.list.d/runner-agent-amd.list"] == (
        "deb [arch=amd64 signed-by=/etc/apt/keyrings/rocm.asc] "
        "https://repo.radeon.com/amdgpu/30.30.3/ubuntu noble main\n"
        "deb [arch=amd64 signed-by=/etc/apt/keyrings/rocm.asc] "
        "https://repo.radeon.com/rocm/apt/7.2.4 noble main\n"
    )
    assert any(c.endswith(f"linux-modules-extra-{KERNEL} amdgpu-dkms") for c in machine.ran)
    assert any(c.endswith("rocm-hip-runtime rocminfo amd-smi-lib") for c in machine.ran)


@pytest.mark.case(
    "Ubuntu's kernels since 7.0 have no linux-modules-extra: AMD's driver is installed without it",
    topic="Accelerators",
    source="ROCm/gpu-operator#631",
)
@pytest.mark.parametrize(
    ("kernel", "packages", "asked"),
    [
        ("6.8.0-1021-aws", (), True),
        ("6.17.0-1007-aws", (), True),
        ("7.0.0-1014-aws", (), False),
        ("7.0.0-38-generic", (), False),
        ("7.0.0-1014-nvidia", ("linux-modules-extra-7.0.0-1014-nvidia",), True),
        ("7.1.0-1003-aws", (), False),
        ("10.0.0-1-aws", (), False),
    ],
)
def test_the_kernels_extra_modules_are_installed_where_there_are_any(
    agent: ModuleType, kernel: str, packages: tuple[str, ...], asked: bool
) -> None:
    machine = AmdMachine(agent)
    machine.release, machine.packages = kernel, set(packages)
    check, _ = install(agent, machine, {**PLAN, "newest_kernel": "10.0"})
    assert check.ok, check
    [got] = [one for one in machine.ran if " install " in one and one.endswith("amdgpu-dkms")]
    assert (f"linux-modules-extra-{kernel}" in got) == asked
    assert machine.ran[machine.ran.index(got) - 1].endswith(("update", kernel))


@pytest.mark.case(
    "AMD's driver does not build for a newer kernel: that is said before anything is installed",
    topic="Accelerators",
    source="ROCm/legacy-rocm-build#6193",
)
@pytest.mark.parametrize(
    ("kernel", "newest", "builds"),
    [
        ("7.0.0-1014-aws", "6.17", False),
        ("6.18.7-061807-generic", "6.17", False),
        ("6.17.0-1007-aws", "6.17", True),
        ("6.9.0-1-aws", "6.17", True),
        ("7.0.0-1014-aws", "7.1", True),
        ("7.10.0-1-aws", "7.1", False),
        ("7.0.0-1014-aws", None, True),
    ],
)
def test_a_kernel_that_is_too_new_is_named_before_the_build(
    agent: ModuleType, kernel: str, newest: str | None, builds: bool
) -> None:
    machine = AmdMachine(agent)
    machine.release = kernel
    check, _ = install(agent, machine, {**PLAN, "newest_kernel": newest})
    assert check.ok == builds
    if not builds:
        assert (check.name, machine.ran) == ("driver_build", [])
        assert check.detail == (
            f"amdgpu 30.30.3 builds for kernels up to {newest}, and this is {kernel}: "
            "take a newer amdgpu-driver in versions.yaml, or an image with an older kernel"
        )


def test_a_driver_that_is_loaded_was_built_for_the_kernel(agent: ModuleType) -> None:
    machine = AmdMachine(agent)
    machine.release = "7.0.0-1014-aws"
    machine.files |= {LOADED: "6.16.13\n", ROCM: "7.2.4-93\n"}
    assert install(agent, machine)[0].ok


@pytest.mark.parametrize(
    ("version", "package"),
    [
        ("30.30", "1:6.16.13.30300000-2278356.24.04"),
        ("31.40.1", "1:6.19.14.31400100-2370000.24.04"),
        ("31.50", "1:7.1.3.31500000-2390945.24.04"),
    ],
)
def test_the_package_has_the_release_of_amds_repository(
    agent: ModuleType, version: str, package: str
) -> None:
    machine = AmdMachine(agent)
    machine.answers["dpkg-query"] = lambda: (0, package)
    check, _ = install(agent, machine, {**PLAN, "version": version})
    assert check.ok, check
    assert check.detail.startswith(f"amdgpu {version}, ")


def test_after_a_reboot_nothing_is_installed(agent: ModuleType) -> None:
    machine = AmdMachine(agent)
    machine.files |= {LOADED: "6.16.13\n", ROCM: "7.2.4-93\n"}
    check, stages = install(agent, machine)
    assert check.ok, check
    assert stages == ["driver_checks"]


@pytest.mark.parametrize(
    ("changed", "detail"),
    [
        ({"rocm": None}, "rocm is missing"),
        ({"key": None}, "vendor, version, url or sha256 is missing"),
        ({"budget_s": None}, "budget_s is missing"),
    ],
)
def test_a_plan_with_a_null_installs_nothing(
    agent: ModuleType, changed: dict[str, Any], detail: str
) -> None:
    assert refusal(agent, {**PLAN, **changed}) == ("driver_plan", detail)


def test_newer_versions_of_amd_smi_answer_with_an_object(agent: ModuleType) -> None:
    machine = AmdMachine(agent)
    answer = json.dumps({"gpu_data": json.loads(asics("gfx942", "gfx942"))})
    machine.answers[AMD_SMI] = lambda: (0, answer)
    assert install(agent, machine)[0].ok


def wrong_headers(machine: AmdMachine) -> None:
    machine.files[HEADER] = define_release("5.10.0-1-cloud")
    machine.answers["apt-get"] = lambda: (0, "")


def half_installed_package(machine: AmdMachine) -> None:
    machine.answers["dpkg --configure"] = lambda: (1, "dpkg: error processing package amdgpu-dkms")


def apt_lock(machine: AmdMachine) -> None:
    machine.answers["apt-get"] = lambda: (100, "E: Could not get lock /var/lib/dpkg/lock")


def mirror_404(machine: AmdMachine) -> None:
    machine.answers["apt-get"] = lambda: (100, "E: Failed to fetch https://x  404  Not Found")


def other_release(machine: AmdMachine) -> None:
    machine.answers["dpkg-query"] = lambda: (0, PACKAGE.replace("30300300", "30200100"))


def installation_that_lies(machine: AmdMachine) -> None:
    machine.answers["apt-get"] = lambda: (0, "")
    machine.files[HEADER] = define_release(KERNEL)
    machine.answers["dpkg-query"] = lambda: (
        1,
        "dpkg-query: no packages found matching amdgpu-dkms",
    )


def other_rocm(machine: AmdMachine) -> None:
    machine.answers["apt-get -q -y -o Acquire::Retries=2 --no-install-recommends install rocm"] = (
        lambda: (0, "")
    )
    machine.files[ROCM] = "7.2.40-1\n"


def module_not_loadable(machine: AmdMachine) -> None:
    machine.answers["modprobe amdgpu"] = lambda: (1, "modprobe: ERROR: Exec format error")


def kernels_own_module(machine: AmdMachine) -> None:
    machine.answers["modprobe amdgpu"] = lambda: (0, "")


def error_with_status_0(machine: AmdMachine) -> None:
    machine.answers[ROCMINFO] = lambda: (0, "hsa api call failure: HSA_STATUS_ERROR")


def gpu_missing(machine: AmdMachine) -> None:
    machine.answers[ROCMINFO] = lambda: (0, rocminfo([AmdGpu()]))


def wrong_architecture(machine: AmdMachine) -> None:
    machine.answers[AMD_SMI] = lambda: (0, asics("gfx942", "gfx90a"))


def smi_without_answer(machine: AmdMachine) -> None:
    machine.answers[AMD_SMI] = lambda: (0, "AttributeError: amdsmi")


def hang(machine: AmdMachine) -> None:
    machine.takes["apt-get"] = 1e9


def other_driver(machine: AmdMachine) -> None:
    machine.files[LOADED] = "6.8.5\n"
    machine.answers["dpkg-query"] = lambda: (0, "1:6.8.5.60202-2041575.22.04")


def other_distribution(machine: AmdMachine) -> None:
    machine.files["/etc/os-release"] = "ID=amzn\n"


@pytest.mark.parametrize(
    ("plant", "name", "detail"),
    [
        (wrong_headers, "driver_headers", "headers of 5.10.0-1-cloud in "),
        (half_installed_package, "driver_packages", "dpkg: error processing package amdgpu-dkms"),
        (apt_lock, "driver_packages", "E: Could not get lock"),
        (mirror_404, "driver_packages", "404  Not Found"),
        (
            other_release,
            "driver_packages",
            "APT installed amdgpu-dkms 30.20.1, and 30.30.3 is wanted",
        ),
        (
            installation_that_lies,
            "driver_packages",
            "APT installed amdgpu-dkms of an unknown version",
        ),
        (other_rocm, "driver_packages", "APT installed ROCm 7.2.40, and 7.2.4 is wanted"),
        (module_not_loadable, "driver_module", "Exec format error"),
        (kernels_own_module, "driver_module", "the kernel has its own amdgpu"),
        (error_with_status_0, "driver_query", "rocminfo exited with 0: hsa api call failure"),
        (gpu_missing, "driver_query", "rocminfo shows 1 GPUs, and the machine has 2"),
        (wrong_architecture, "driver_query", "amd-smi shows gfx942, gfx90a, and rocminfo gfx942"),
        (smi_without_answer, "driver_query", "amd-smi shows no GPU"),
        (hang, "driver_packages", "apt-get did not end within"),
        (other_driver, "driver_present", "the image already has amdgpu 6.8.5"),
        (other_distribution, "driver_packages", "Ubuntu jammy and noble only"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_planted_failure_is_named(
    agent: ModuleType, plant: Any, name: str, detail: str
) -> None:
    machine = AmdMachine(agent)
    plant(machine)
    check, _ = install(agent, machine)
    assert (check.name, check.ok) == (name, False)
    assert detail in check.detail
    # APT would choose the same package again.
    assert ("(try " not in check.detail) or "APT installed" not in check.detail
    assert machine.time <= PLAN["budget_s"]
