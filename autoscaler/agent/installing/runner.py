"""Installs GitHub's runner on a stock Linux image at boot: packages, the user, the runner itself.

The machine then has what an image of the recipe linux-cpu has (ami/linux). A test compares both.
"""

from __future__ import annotations

import collections
import os

from autoscaler.agent.clock import Clock
from autoscaler.agent.host import Host
from autoscaler.agent.installing.local_machine import LocalMachine
from autoscaler.agent.installing.package_manager import PackageManager
from autoscaler.agent.installing.parts import (
    InstallFailure,
    error_line,
    read_budget,
    read_remote_file,
)
from autoscaler.agent.journal import log_line
from autoscaler.agent.programs import NotInstalled, NoUsableAnswer, last_line
from autoscaler.agent.runner.account import runner_program
from autoscaler.agent.verdicts import MOST_DETAIL, Check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

RunnerPlan = collections.namedtuple("RunnerPlan", ("version", "file", "budget"))
"""The runner that the controller wants. `budget`: seconds of the machine for everything."""

TOOL_CACHE = "/opt/hostedtoolcache"
RUNNER_ENVIRONMENT = (
    "LANG=C.UTF-8",
    f"RUNNER_TOOL_CACHE={TOOL_CACHE}",
    f"AGENT_TOOLSDIRECTORY={TOOL_CACHE}",
)
JOBS_PATH = "/home/runner/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""A runner with a JIT configuration never runs config.sh, which otherwise writes `.env` and `.path`."""

RUNNER_GROUPS = ("docker", "video", "render")
SUDOERS = "/etc/sudoers.d/90-runner"
SUDO_RIGHTS = "runner ALL=(ALL) NOPASSWD: ALL\n"

RUNNER_ARCHIVE = "/var/lib/runner-agent/runner.tar.gz"
RUNNER_GIB = 3.0
"""The archive, what it contains, and the packages, with a margin."""

UPGRADES = ("apt-daily.timer", "apt-daily-upgrade.timer", "unattended-upgrades.service")
"""Ubuntu upgrades itself at boot, which holds APT's lock and can reboot a machine during a job."""

RUNNER_PACKAGES = {
    "apt-get": (
        *("acl", "ca-certificates", "curl", "docker-buildx", "docker.io", "git", "jq", "sudo"),
        *("tar", "unzip", "xz-utils", "zip", "zstd"),
        *("libicu74", "libkrb5-3", "libssl3t64", "zlib1g"),
    ),
    "dnf": (
        *("acl", "ca-certificates", "docker", "git", "gzip", "jq", "shadow-utils", "sudo"),
        *("tar", "unzip", "xz", "zip", "zstd"),
        *("krb5-libs", "libicu", "openssl-libs", "zlib"),
    ),
}
"""For Ubuntu 24.04 and Amazon Linux 2023: what jobs expect, then what .NET needs (learn.microsoft.com, "Install
.NET on Linux"; actions/runner, installdependencies.sh, which does not know Amazon Linux). Amazon Linux has
curl-minimal, with which its curl conflicts."""

DOWNLOAD_TRIES = 4
DOWNLOAD_PAUSE = 5.0
"""Seconds before the second try; it doubles each time."""


class RunnerPackages(PackageManager):
    """The packages of a runner."""

    name = "runner_packages"


def install_wanted_runner(
    health_checks: dict[str, Any],
    host: Host,
    clock: Clock,
    report: Callable[[str], None],
) -> list[Check]:
    """Install the runner that the controller's parameters name. If they name none, or there is one: no checks.

    `report` gets each stage before it begins.
    """
    parameters = health_checks.get("runner")
    if not isinstance(parameters, dict) or os.path.lexists(runner_program(host)):
        return []
    try:
        machine = LocalMachine(host, clock)
    except OSError as error:
        return [Check("runner_space", False, f"{host.install_log}: {error.strerror}")]
    return [install_runner(parameters, host, machine, report)]


def install_runner(
    parameters: dict[str, Any], host: Host, machine: LocalMachine, report: Callable[[str], None]
) -> Check:
    """Install the runner; return the check `runner_install`, or the one that failed."""
    began = machine.now()
    try:
        plan = read_runner_plan(parameters)
        RunnerInstallation(plan, host, machine, report, began + plan.budget).install()
    except InstallFailure as failure:
        log_line(f"runner: {failure.name}: {failure}")
        return Check(failure.name, False, f"{failure}"[:MOST_DETAIL])
    except OSError as error:
        return Check("runner_space", False, f"{error}"[:MOST_DETAIL])
    took = machine.now() - began
    return Check("runner_install", True, f"actions/runner {plan.version}, {took:.0f} s")


def read_runner_plan(parameters: dict[str, Any]) -> RunnerPlan:
    """Return the controller's parameters `runner`. Raises InstallFailure if they are not usable."""
    version, file = parameters.get("version"), read_remote_file(parameters)
    budget = read_budget(parameters)
    if not isinstance(version, str) or file is None or budget is None:
        raise InstallFailure("runner_install", "version, url, sha256 or budget_s is missing")
    return RunnerPlan(version, file, budget)


class RunnerInstallation:
    """The installation of one runner. `end` is when it must be over."""

    def __init__(
        self,
        plan: RunnerPlan,
        host: Host,
        machine: LocalMachine,
        report: Callable[[str], None],
        end: float,
    ) -> None:
        self._plan = plan
        self._host = host
        self._machine = machine
        self._report = report
        self._end = end

    def install(self) -> None:
        """Install everything. A step whose result is there already does nothing.

        Raises InstallFailure, OSError.
        """
        free = self._machine.free()
        if free < RUNNER_GIB:
            why = f"{free:.1f} GiB free, {RUNNER_GIB:g} wanted: raise disk_gb"
            raise InstallFailure("runner_space", why)
        self._report("runner_packages")
        self._install_packages()
        self._report("runner_download")
        self._download()
        self._report("runner_install")
        self._make_account()
        self._unpack()

    def _install_packages(self) -> None:
        packages = RunnerPackages(self._machine, self._end)
        if packages.manager == "apt-get":
            # They are absent from other images, and the lock shows it if this was in vain.
            self._run(["systemctl", "mask", "--now", *UPGRADES], check=False)
        packages.install(RUNNER_PACKAGES.get(packages.manager, ()))
        self._run(["systemctl", "enable", "--now", "docker.service"], name="runner_packages")

    def _download(self) -> None:
        pause = DOWNLOAD_PAUSE
        for number in range(1, DOWNLOAD_TRIES + 1):
            try:
                self._machine.fetch(
                    self._plan.file, RUNNER_ARCHIVE, self._left(), name="runner_download"
                )
            except InstallFailure as failure:
                over = self._machine.now() + pause > self._end
                if failure.lasting or over or number == DOWNLOAD_TRIES:
                    raise
                log_line(f"runner, download, try {number}: {failure}")
                self._machine.sleep(pause)
                pause *= 2
            else:
                return

    def _make_account(self) -> None:
        """Create the user of the runner, with sudo and its groups, unless the machine has it."""
        user = self._host.runner_user
        if user is None or self._run(["id", "-u", user], check=False):
            return
        self._run(["useradd", "--create-home", "--shell", "/bin/bash", user])
        for group in RUNNER_GROUPS:
            self._run(["groupadd", "--system", "--force", group])
        self._run(["usermod", "--append", "--groups", ",".join(RUNNER_GROUPS), user])
        self._machine.write(SUDOERS, SUDO_RIGHTS)
        self._run(["chmod", "440", self._machine.path(SUDOERS)])

    def _unpack(self) -> None:
        """Unpack the runner beside its folder, then rename that: a folder with the right name is complete."""
        folder, machine = self._host.runner_directory, self._machine
        fresh, archive = f"{folder}.new", machine.path(RUNNER_ARCHIVE)
        tools = machine.path(TOOL_CACHE)
        self._run(["rm", "-rf", fresh])
        self._run(["mkdir", "-p", f"{fresh}/_work", tools])
        self._run(["tar", "-xzf", archive, "--no-same-owner", "-C", fresh])
        for name, lines in ((".env", RUNNER_ENVIRONMENT), (".path", (JOBS_PATH,))):
            with open(os.path.join(fresh, name), "w", encoding="ascii") as file:
                file.write("".join(f"{line}\n" for line in lines))
        if self._host.runner_user is not None:
            self._run(["chown", "-R", f"{self._host.runner_user}:", fresh, tools])
        self._run(["rm", "-f", archive])
        os.rename(fresh, folder)

    def _run(
        self, argv: Sequence[str], *, check: bool = True, name: str = "runner_install"
    ) -> bool:
        """Run a program; return whether it succeeded. Raises InstallFailure if it must and does not."""
        try:
            found = self._machine.run(argv, self._left())
        except (NotInstalled, NoUsableAnswer) as error:
            if not check:
                return False
            raise InstallFailure(name, str(error)) from error
        if check and found.status != 0:
            why = error_line(found.text) or last_line(found.text)
            raise InstallFailure(name, f"{argv[0]} exited with {found.status}: {why}")
        return bool(found.status == 0)

    def _left(self) -> float:
        return max(1.0, self._end - self._machine.now())
