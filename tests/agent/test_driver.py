"""The installation of NVIDIA's driver: what each planted failure is called, and what a good machine does."""

import errno
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest

from lab.machines.gpus import nvidia_gpu, nvidia_log
from tests.agent.driver_machine import (
    A10G,
    B200,
    H100,
    HEADER,
    K80,
    KERNEL,
    LOADED,
    M60,
    PLAN,
    V100,
    VERSION,
    FakeMachine,
    define_release,
    refusal,
)

SERVICE = "/etc/systemd/system/nvidia-fabricmanager.service"
BUILD = f"sh /var/lib/runner-agent/driver/NVIDIA-Linux-x86_64-{VERSION}.run"


def install(
    agent: ModuleType, machine: Any, plan: Mapping[str, Any] = PLAN
) -> tuple[Any, list[str]]:
    stages: list[str] = []
    check = agent.install_driver(agent.read_driver_plan(dict(plan)), machine, stages.append)
    return check, stages


def failure(agent: ModuleType, machine: Any, plan: Mapping[str, Any] = PLAN) -> tuple[str, str]:
    check, _ = install(agent, machine, plan)
    assert not check.ok
    return check.name, check.detail


def test_a_stock_machine_gets_headers_driver_and_persistence(agent: ModuleType) -> None:
    machine = FakeMachine(agent)
    check, stages = install(agent, machine)
    assert check == ("driver", True, f"NVIDIA {VERSION}, open modules, try 1, 9 s")
    assert stages == [
        "driver_checks",
        "driver_packages",
        "driver_download",
        "driver_build",
        "driver_load",
    ]
    assert machine.ran == [
        "dpkg --configure -a",
        "apt-get -q -y -o Acquire::Retries=2 --fix-broken install",
        "apt-get -q -y -o Acquire::Retries=2 update",
        "apt-get -q -y -o Acquire::Retries=2 --no-install-recommends install "
        f"linux-headers-{KERNEL} gcc make libc6-dev",
        f"{BUILD} --silent --no-drm --skip-module-load --kernel-module-type=open",
        "modprobe nvidia",
        "modprobe nvidia-uvm",
        "nvidia-smi -q -x",
        "nvidia-smi -pm 1",
    ]
    assert machine.variables["sh"] == {"CC": "gcc-12"}
    assert machine.fetched == [PLAN["url"]]


def test_a_machine_that_has_the_driver_installs_nothing(agent: ModuleType) -> None:
    """After a reboot, or if the attestation is repeated."""
    machine = FakeMachine(agent)
    machine.files |= {LOADED: VERSION + "\n", "/etc/nvidia/gridd.conf": ""}
    machine.space = 0.5
    check, stages = install(agent, machine)
    assert check.ok
    assert stages == ["driver_checks"]
    assert machine.ran == ["nvidia-smi -q -x", "nvidia-smi -pm 1"]


def test_dnf_gets_the_headers_of_the_running_kernel(agent: ModuleType) -> None:
    machine = FakeMachine(agent)
    machine.programs = {"dnf"}
    check, _ = install(agent, machine)
    assert check.ok
    assert machine.ran[0] == f"dnf -y install kernel-devel-uname-r == {KERNEL} gcc make"


@pytest.mark.parametrize(
    ("gpus", "modules"),
    [((A10G,), "open"), ((V100, V100), "proprietary"), ((M60,), "proprietary"), ((H100,), "open")],
)
def test_the_kernel_modules_follow_the_generation_of_the_gpus(
    agent: ModuleType, gpus: tuple[int, ...], modules: str
) -> None:
    machine = FakeMachine(agent, gpus)
    check, _ = install(agent, machine)
    assert check.ok
    [build] = [command for command in machine.ran if command.startswith("sh ")]
    assert build.endswith(f"--kernel-module-type={modules}")


@pytest.mark.parametrize(
    ("installed", "compiler"),
    [
        ({"gcc", "gcc-12", "gcc12-gcc"}, "gcc-12"),
        ({"gcc", "gcc12-gcc"}, "gcc12-gcc"),
        ({"gcc", "gcc-13"}, "gcc"),
    ],
)
def test_the_kernel_modules_are_built_with_the_compiler_of_the_kernel_if_it_is_there(
    agent: ModuleType, installed: set[str], compiler: str
) -> None:
    machine = FakeMachine(agent)
    machine.programs = {"apt-get", "make", *installed}
    assert install(agent, machine)[0].ok
    assert machine.variables["sh"] == {"CC": compiler}


@pytest.mark.parametrize(
    ("gpus", "version", "detail"),
    [
        ((), VERSION, "the machine has no NVIDIA GPU"),
        ((K80,), VERSION, f"GPU 102d is older than Maxwell, and {VERSION} does not support it"),
        ((V100,), "590.48.01", "GPU 1db1 needs branch 580 or older, and 590.48.01 is newer"),
        ((B200,) * 8, VERSION, "the fabric of these GPUs needs the NVLink Subnet Manager: "
         "use driver: preinstalled"),
    ],
)  # fmt: skip
def test_gpus_that_the_driver_cannot_run_are_refused_before_anything_is_installed(
    agent: ModuleType, gpus: tuple[int, ...], version: str, detail: str
) -> None:
    machine = FakeMachine(agent, gpus)
    assert failure(agent, machine, {**PLAN, "version": version}) == ("driver_device", detail)
    assert machine.ran == []


@pytest.mark.parametrize(
    ("files", "name", "detail"),
    [
        ({LOADED: "550.90.07\n"}, "driver_present",
         "the image already has driver 550.90.07: use driver: preinstalled"),
        ({"/etc/nvidia/gridd.conf.template": ""}, "driver_present",
         "the image has a GRID driver, which this agent does not install"),
        ({"/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c":
          "\x06\0\0\0\x01"}, "driver_secure_boot",
         "Secure Boot is on, so the kernel loads no module that is built here"),
    ],
)  # fmt: skip
def test_an_image_that_cannot_work_is_refused_before_anything_is_installed(
    agent: ModuleType, files: dict[str, str], name: str, detail: str
) -> None:
    machine = FakeMachine(agent)
    machine.files |= files
    assert failure(agent, machine) == (name, detail)
    assert machine.ran == []


def test_a_small_disk_is_refused_before_anything_is_installed(agent: ModuleType) -> None:
    machine = FakeMachine(agent)
    machine.space = 5.4
    assert failure(agent, machine) == ("driver_space", "5.4 GiB free, 6 wanted")
    assert machine.ran == []


def test_secure_boot_does_not_matter_if_the_driver_runs_already(agent: ModuleType) -> None:
    """For example with modules that the image's publisher signed."""
    machine = FakeMachine(agent)
    secure = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    machine.files |= {secure: "\x06\0\0\0\x01", LOADED: VERSION + "\n"}
    assert install(agent, machine)[0].ok


def test_secure_boot_that_is_off_does_not_matter(agent: ModuleType) -> None:
    assert not agent.secure_boot("\x06\0\0\0\x00")
    assert not agent.secure_boot("")


# --- The planted failures ---------------------------------------------------------------------------


@pytest.mark.case(
    "a driver that is installed at boot cannot be built: the headers are those of another kernel",
    topic="Accelerators",
    source="pytorch#129880",
)
def test_headers_of_another_kernel_are_named(agent: ModuleType) -> None:
    machine = FakeMachine(agent)
    machine.files[HEADER] = define_release("6.1.0-18-amd64")
    machine.answers["apt-get"] = lambda: (0, "")
    detail = f"headers of 6.1.0-18-amd64 in /lib/modules/{KERNEL}/build (try 3)"
    assert failure(agent, machine) == ("driver_headers", detail)
    assert not [command for command in machine.ran if command.startswith("sh ")]


def test_a_missing_compiler_is_named(agent: ModuleType) -> None:
    machine = FakeMachine(agent)
    machine.programs = {"apt-get", "make"}
    machine.files[HEADER] = define_release(KERNEL)
    machine.answers["apt-get"] = lambda: (0, "")
    assert failure(agent, machine) == ("driver_compiler", "gcc or make is not installed (try 3)")


def test_an_image_without_a_package_manager_is_named(agent: ModuleType) -> None:
    machine = FakeMachine(agent)
    machine.programs = set()
    detail = "the image has neither apt-get nor dnf (try 3)"
    assert failure(agent, machine) == ("driver_packages", detail)


def test_a_lock_is_waited_for(agent: ModuleType) -> None:
    """cloud-init and unattended-upgrades use APT at boot, too."""
    machine = FakeMachine(agent)
    locked = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 812 (apt-get)"
    update = "apt-get -q -y -o Acquire::Retries=2 update"
    answers = [(100, locked)] * 4
    machine.answers[update] = lambda: answers.pop() if answers else (0, "")
    check, _ = install(agent, machine)
    assert check.ok
    assert machine.ran.count(update) == 5
    assert machine.time > 40


def test_a_lock_that_stays_is_named(agent: ModuleType) -> None:
    machine = FakeMachine(agent)
    locked = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 812 (apt)"
    machine.answers["apt-get"] = lambda: (100, locked + "\nE: Unable to acquire\n")
    assert failure(agent, machine) == ("driver_packages", locked + " (try 3)")
    assert 3 * 150 < machine.time < 3 * 250


def test_a_module_that_cannot_be_loaded_is_named_and_the_gpus_are_reset(agent: ModuleType) -> None:
    machine = FakeMachine(agent, (A10G, A10G))
    reset = "/sys/bus/pci/devices/0000:01:00.0/reset"
    machine.files[reset] = ""
    why = "modprobe: ERROR: could not insert 'nvidia': Exec format error"
    machine.answers["modprobe nvidia"] = lambda: (1, f"{why}\n")
    check, stages = install(agent, machine)
    assert check[:2] == ("driver_module", False)
    assert check.detail == f"modprobe exited with 1: {why} (try 3)"
    assert stages.count("driver_reset") == 2
    assert machine.files[reset] == "1"
    assert machine.ran.count("modprobe -r nvidia-uvm") == 2


def test_a_second_try_can_succeed(agent: ModuleType) -> None:
    machine = FakeMachine(agent)
    fails = [(1, "ERROR: Unable to build the NVIDIA kernel module.\nSee the log.\n")]
    machine.answers["sh "] = lambda: fails.pop() if fails else (0, "")
    check, _ = install(agent, machine)
    assert check.ok
    assert "try 2" in check.detail


def test_an_error_of_the_installer_is_named(agent: ModuleType) -> None:
    machine = FakeMachine(agent)
    why = "ERROR: Unable to build the NVIDIA kernel module."
    machine.answers["sh "] = lambda: (
        1,
        f"Verifying archive integrity... OK\n{why}\nSee the log.\n",
    )
    assert failure(agent, machine) == ("driver_build", f"sh exited with 1: {why} (try 3)")


def test_an_installer_that_hangs_is_ended_within_the_budget(agent: ModuleType) -> None:
    machine = FakeMachine(agent)
    machine.takes["sh "] = 1e9
    name, detail = failure(agent, machine)
    assert (name, detail) == ("driver_build", "sh did not end within 600 s (try 3)")
    assert 1700 < machine.time <= PLAN["budget_s"]


@pytest.mark.parametrize("url", [PLAN["url"], PLAN["fabric_manager"]["url"]])
def test_a_download_that_hangs_is_ended_within_the_budget(agent: ModuleType, url: str) -> None:
    machine = FakeMachine(agent, (H100,) * 8, switches=4)
    machine.takes[url] = 1e9
    name, detail = failure(agent, machine)
    assert (name, detail.startswith(f"{url}: not complete after ")) == ("driver_download", True)
    assert detail.endswith(" s (try 3)")
    assert 1700 < machine.time <= PLAN["budget_s"]


def test_a_reset_has_time_although_a_try_used_up_its_own(agent: ModuleType) -> None:
    machine = FakeMachine(agent)
    machine.takes |= {"sh ": 1e9, "modprobe -r nvidia-uvm": 20.0}
    ended: list[str] = []

    def unload() -> tuple[int, str]:
        ended.append("nvidia-uvm")
        return 0, ""

    machine.answers["modprobe -r nvidia-uvm"] = unload
    failure(agent, machine)
    assert len(ended) == 2


def test_space_that_a_failed_try_used_hides_no_failure(agent: ModuleType) -> None:
    machine = FakeMachine(agent)

    def build() -> tuple[int, str]:
        machine.space = 2.0
        return 1, "ERROR: no\n"

    machine.answers["sh "] = build
    assert failure(agent, machine) == ("driver_build", "sh exited with 1: ERROR: no (try 3)")


def test_modules_that_cannot_be_unloaded_hide_no_failure(agent: ModuleType) -> None:
    """`modprobe -r` waits for a process that hangs in the driver."""
    machine = FakeMachine(agent)
    machine.takes["modprobe -r"] = 1e9
    machine.answers["sh "] = lambda: (1, "ERROR: no\n")
    assert failure(agent, machine) == ("driver_build", "sh exited with 1: ERROR: no (try 3)")


def test_a_full_disk_is_reported_although_the_log_cannot_be_written(agent: ModuleType) -> None:
    machine = FakeMachine(agent)

    def full() -> tuple[int, str]:
        raise OSError(errno.ENOSPC, "No space left on device")

    machine.answers |= {"sh ": full, "modprobe -r": full}
    detail = "[Errno 28] No space left on device (try 3)"
    assert failure(agent, machine) == ("driver_space", detail)


def test_no_try_begins_after_the_budget(agent: ModuleType) -> None:
    machine = FakeMachine(agent)
    machine.takes["sh "] = 1e9
    name, detail = failure(agent, machine, {**PLAN, "budget_s": 700})
    assert (name, detail[-7:]) == ("driver_build", "(try 2)")
    assert machine.time <= 720


def test_an_error_of_nvidia_smi_with_status_0_is_named(agent: ModuleType) -> None:
    machine = FakeMachine(agent)
    machine.log = "Unable to determine the device handle for GPU0: 0000:00:1E.0: Unknown Error\n"
    detail = f"nvidia-smi exited with 0: {machine.log.strip()} (try 3)"
    assert failure(agent, machine) == ("driver_query", detail)


def test_another_version_of_the_driver_is_named(agent: ModuleType) -> None:
    machine = FakeMachine(agent)
    machine.log = nvidia_log([nvidia_gpu(0)], "575.51.03")
    detail = f"nvidia-smi shows driver 575.51.03, and {VERSION} is wanted (try 3)"
    assert failure(agent, machine) == ("driver_query", detail)


def test_a_driver_without_gpus_is_named(agent: ModuleType) -> None:
    machine = FakeMachine(agent)
    machine.log = nvidia_log([nvidia_gpu(0, {"product_name": ""})], VERSION)
    detail = "nvidia-smi shows no GPU with a name (try 3)"
    assert failure(agent, machine) == ("driver_query", detail)


def test_another_version_of_the_module_is_named(agent: ModuleType) -> None:
    machine = FakeMachine(agent)
    machine.answers["modprobe nvidia"] = lambda: (0, "")
    detail = f"the kernel has driver none, and {VERSION} is wanted (try 3)"
    assert failure(agent, machine) == ("driver_module", detail)


def test_machines_with_nvswitches_get_fabric_manager(agent: ModuleType) -> None:
    machine = FakeMachine(agent, (H100,) * 8, switches=4)
    check, stages = install(agent, machine)
    assert check.ok
    assert stages[-1] == "driver_fabric_manager"
    assert machine.fetched[-1] == PLAN["fabric_manager"]["url"]
    folder = "/var/lib/runner-agent/driver"
    assert "mkdir -p /usr/share/nvidia/nvswitch" in machine.ran
    assert f"cp -a {folder}/systemd/nvidia-fabricmanager.service {SERVICE}" in machine.ran
    assert machine.ran[-4:-1] == [
        f"systemctl {verb} nvidia-fabricmanager.service"
        for verb in ("enable", "start", "is-active")
    ]


def test_fabric_manager_without_a_checksum_is_refused_on_machines_with_nvswitches_only(
    agent: ModuleType,
) -> None:
    plan = {**PLAN, "fabric_manager": None}
    machine = FakeMachine(agent, (H100,) * 8, switches=4)
    detail = "NVSwitches need Fabric Manager, whose checksum is not in versions.yaml"
    assert failure(agent, machine, plan) == ("driver_fabric_manager", detail)
    assert machine.ran == []
    check, _ = install(agent, FakeMachine(agent, (H100,)), plan)
    assert check.ok


NOT_READY = (1, "Job for nvidia-fabricmanager.service failed because the control process exited\n")


@pytest.mark.case(
    "Fabric Manager fails seconds after the modules were loaded: it is started again, and they stay loaded",
    topic="Accelerators",
    source="pytorch/ci-infra#552",
)
@pytest.mark.parametrize("failures", [1, 3, 7])
@pytest.mark.parametrize("command", ["systemctl start nvidia", "systemctl is-active nvidia"])
def test_fabric_manager_is_started_until_it_runs(
    agent: ModuleType, failures: int, command: str
) -> None:
    machine = FakeMachine(agent, (H100,) * 8, switches=4)
    machine.takes["systemctl start"] = 31.0
    answers = [NOT_READY] * failures
    machine.answers[command] = lambda: answers.pop() if answers else (0, "")
    check, stages = install(agent, machine)
    assert check.ok
    assert "try 1," in check.detail
    starts = [c for c in machine.ran if c == "systemctl start nvidia-fabricmanager.service"]
    assert len(starts) == failures + 1
    assert "driver_reset" not in stages
    assert not [c for c in machine.ran if c.startswith("modprobe -r")]


@pytest.mark.parametrize("takes", [1.0, 31.0, 1e9])
def test_a_fabric_manager_that_never_runs_is_named_after_its_own_limit(
    agent: ModuleType, takes: float
) -> None:
    """Also one that hangs. No other try loads the modules again, because it fails after that, too."""
    machine = FakeMachine(agent, (H100,) * 8, switches=4)
    machine.files |= {SERVICE: "", LOADED: VERSION + "\n"}
    machine.takes["systemctl start"] = takes
    machine.answers["systemctl start"] = lambda: NOT_READY
    check, stages = install(agent, machine)
    assert (check.name, check.ok) == ("driver_fabric_manager", False)
    assert "(try" not in check.detail
    assert "driver_reset" not in stages
    limit = agent.FABRIC_MANAGER_START
    assert limit - 10 - min(takes, 120) <= machine.time <= limit + 130
    assert PLAN["fabric_manager"]["url"] not in machine.fetched


def test_fabric_manager_gets_its_time_although_the_build_used_up_that_of_the_try(
    agent: ModuleType,
) -> None:
    machine = FakeMachine(agent, (H100,) * 8, switches=4)
    machine.takes["sh "] = 570.0
    machine.answers["systemctl start"] = lambda: NOT_READY if machine.time < 700 else (0, "")
    check, stages = install(agent, machine)
    assert check.ok
    assert "try 2," in check.detail
    assert "driver_reset" not in stages
    assert machine.ran.count("modprobe nvidia") == 1


def test_the_toolkit_is_tested_in_a_container(agent: ModuleType) -> None:
    machine = FakeMachine(agent)
    machine.programs.add("docker")
    check, stages = install(agent, machine)
    assert check.ok
    assert stages[-1] == "driver_toolkit"
    listed = machine.files["/etc/apt/sources.list.d/nvidia-container-toolkit.list"]
    assert listed == (
        "deb [signed-by=/etc/apt/keyrings/nvidia-container-toolkit.asc] "
        "https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH) /\n"
    )
    image = PLAN["toolkit"]["image"]
    assert machine.ran[-6].endswith(" libnvidia-container1=1.20.0-1")
    assert machine.ran[-5:] == [
        "nvidia-ctk runtime configure --runtime=docker",
        "systemctl restart docker",
        f"docker image inspect --format {{{{.Id}}}} {image}",
        f"docker pull -q {image}",
        f"docker run --rm --gpus all {image} nvidia-smi -q -x",
    ]


def test_the_toolkits_repository_for_dnf(agent: ModuleType) -> None:
    machine = FakeMachine(agent)
    machine.programs = {"dnf", "docker"}
    check, _ = install(agent, machine)
    assert check.ok
    assert machine.files["/etc/yum.repos.d/nvidia-container-toolkit.repo"] == (
        "[nvidia-container-toolkit]\nname=nvidia-container-toolkit\n"
        "baseurl=https://nvidia.github.io/libnvidia-container/stable/rpm/$basearch\n"
        "repo_gpgcheck=1\ngpgcheck=0\n"
        "gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia-container-toolkit\n"
    )


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        ((125, "docker: Error response from daemon: could not select device driver"),
         "nvidia-smi exited with 125: docker: Error response from daemon: could not select device "
         "driver"),
        ((0, nvidia_log([nvidia_gpu(0)], VERSION)),
         "a container sees 1 GPUs, and the machine has 2"),
    ],
)  # fmt: skip
def test_a_broken_toolkit_is_named(agent: ModuleType, answer: tuple[int, str], detail: str) -> None:
    machine = FakeMachine(agent, (A10G, A10G))
    machine.programs |= {"docker", "nvidia-ctk"}
    machine.answers["docker run"] = lambda: answer
    assert failure(agent, machine) == ("driver_toolkit", detail + " (try 3)")


@pytest.mark.case(
    "a registry refuses the image of the toolkit's test: a warning, and the machine is used",
    topic="Accelerators",
    source="docker/docs#22134",
)
@pytest.mark.parametrize(
    ("takes", "answer", "why"),
    [
        (1.0, (1, "Error response from daemon: toomanyrequests: You have reached your "
         "unauthenticated pull rate limit."), "toomanyrequests"),
        (1.0, (1, "Error response from daemon: Get https://registry: dial tcp: no such host"),
         "no such host"),
        (1.0, (1, ""), "no output"),
        (1e9, (0, ""), "docker did not end within 120 s"),
    ],
)  # fmt: skip
def test_an_image_that_cannot_be_pulled_is_a_warning(
    agent: ModuleType, takes: float, answer: tuple[int, str], why: str
) -> None:
    machine = FakeMachine(agent)
    machine.programs |= {"docker", "nvidia-ctk"}
    machine.takes["docker pull"] = takes
    machine.answers["docker pull"] = lambda: answer
    check, stages = install(agent, machine)
    assert check.ok
    assert "warning: the container toolkit is not tested: " in check.detail
    assert why in check.detail
    assert "try 1," in check.detail
    assert "driver_reset" not in stages
    assert not [command for command in machine.ran if command.startswith("docker run")]


def test_an_image_that_is_there_is_not_pulled(agent: ModuleType) -> None:
    machine = FakeMachine(agent)
    machine.programs |= {"docker", "nvidia-ctk"}
    machine.container_images.add(PLAN["toolkit"]["image"])
    check, _ = install(agent, machine)
    assert check.ok
    assert not [command for command in machine.ran if command.startswith("docker pull")]
    assert machine.ran[-1].startswith("docker run --rm --gpus all")


def test_a_broken_toolkit_leaves_the_modules_loaded(agent: ModuleType) -> None:
    machine = FakeMachine(agent, (H100,) * 8, switches=4)
    machine.programs |= {"docker", "nvidia-ctk"}
    machine.answers["docker run"] = lambda: (125, "docker: could not select device driver")
    check, stages = install(agent, machine)
    assert (check.name, check.ok) == ("driver_toolkit", False)
    assert "driver_reset" not in stages


def test_a_plan_without_toolkit_leaves_containers_alone(agent: ModuleType) -> None:
    machine = FakeMachine(agent)
    machine.programs.add("docker")
    check, stages = install(agent, machine, {**PLAN, "toolkit": None})
    assert check.ok
    assert "driver_toolkit" not in stages


@pytest.mark.parametrize(
    ("changed", "detail"),
    [
        ({"sha256": None}, "vendor, version, url or sha256 is missing"),
        ({"budget_s": None}, "budget_s is missing"),
        ({"toolkit": {"version": "1.20.0"}}, "toolkit has no version, key or image"),
    ],
)
def test_a_plan_with_a_null_installs_nothing(
    agent: ModuleType, changed: dict[str, Any], detail: str
) -> None:
    assert refusal(agent, {**PLAN, **changed}) == ("driver_plan", detail)


def test_another_vendor_installs_nothing(agent: ModuleType) -> None:
    machine = FakeMachine(agent)
    plan = {**PLAN, "vendor": "intel"}
    detail = "this agent does not know the vendor"
    assert failure(agent, machine, plan) == ("driver_plan", detail)
