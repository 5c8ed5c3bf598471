"""All health checks of a machine before it may get a registration: its own, its accelerators', its image's."""

from __future__ import annotations

import os
import socket
import subprocess
import urllib.parse

from autoscaler.agent.actions import BadSettings, TryAgain
from autoscaler.agent.boot.boot_script import check_boot_script
from autoscaler.agent.boot.bootstrap_client import is_name
from autoscaler.agent.boot.http_client import Link, proxy_for
from autoscaler.agent.checks.accelerators import check_accelerators
from autoscaler.agent.clock import Clock
from autoscaler.agent.hooks.job_hooks import check_hooks
from autoscaler.agent.host import WINDOWS, Host, free_bytes
from autoscaler.agent.limits import IMAGE_CHECK, MOST_SETTINGS, MOST_VERSION
from autoscaler.agent.programs import NotInstalled, NoUsableAnswer, last_line, run_program
from autoscaler.agent.runner.account import runner_account, runner_program
from autoscaler.agent.runner.listener_log import readable
from autoscaler.agent.verdicts import Check, verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


GITHUB_TIMEOUT = 10.0
"""Real seconds for GitHub's answer, also in a lab: there, GitHub shares a host with all machines that boot."""

VERSION_TIMEOUT = 60.0
"""Seconds for `Runner.Listener --version`: a new volume loads its blocks when they are first read."""

FREE_INODES = 50_000
"""A checkout of a large repository with its submodules has tens of thousands of files."""


PROGRAM = "/opt/runner-agent/health-check"
"""The check that an image brings itself, such as a short computation on each GPU."""


def check_machine(
    health_checks: dict[str, Any], skew: float | None, host: Host, clock: Clock
) -> list[Check]:
    """Run the checks with the controller's parameters. The image's own runs if all others passed.

    `skew`: how far the clock is off, in seconds. If a job runs in a pod of its own, with the accelerators and
    another image, neither the accelerators nor the image are checked here.
    """
    checks = run_health_checks(health_checks, skew, host, GITHUB_TIMEOUT)
    if not host.has_accelerators:
        return checks
    checks += check_accelerators(health_checks, host, clock)
    if all(check.ok for check in checks):
        checks += check_image(host, clock)
    return checks


def run_health_checks(
    health_checks: dict[str, Any], skew: float | None, host: Host, timeout: float
) -> list[Check]:
    """Run the health checks with the controller's parameters. `timeout`: real seconds."""
    checks = [Check("controller", True, "answered the attestation"), *check_boot_script(host)]
    wanted = health_checks.get("disk_gb")
    if isinstance(wanted, (int, float)):
        free = free_bytes(host.root or os.sep) / 2**30
        checks.append(Check("disk", free >= wanted, f"{free:.1f} GiB free, {wanted:g} wanted"))
        if not WINDOWS:
            checks.append(check_inodes(os.statvfs(host.root or os.sep)))
    allowed = health_checks.get("clock_skew_s")
    if isinstance(allowed, (int, float)):
        known = skew is not None and skew <= allowed
        detail = "no Date header" if skew is None else f"{skew:.1f} s off, {allowed:g} allowed"
        checks.append(Check("clock", known, detail))
    checks += _check_github(health_checks, host, timeout)
    checks.append(_check_runner(host))
    if checks[-1].ok:
        checks.append(_check_version(host, timeout * VERSION_TIMEOUT / 10.0))
        checks.append(check_hooks(host, timeout * VERSION_TIMEOUT / 10.0))
    return checks


def check_inodes(found: Any) -> Check:
    """Return the check of a file system's statvfs(3). Some, such as Btrfs, have no fixed number of inodes."""
    enough = found.f_files == 0 or found.f_favail >= FREE_INODES
    return Check("inodes", enough, f"{found.f_favail:,} free, {FREE_INODES:,} wanted")


def _check_github(health_checks: dict[str, Any], host: Host, timeout: float) -> list[Check]:
    """Return the checks of DNS and of GitHub's API and broker. Without DNS, no request can reach them."""
    urls = {}
    for name in ("github", "broker"):
        if isinstance(health_checks.get(name), str):
            urls[name] = health_checks[name]
    if not urls:
        return []
    checks = [check_dns(urls.values(), host.root)]
    if checks[0].ok:
        checks += [_check_reachable(name, url, timeout) for name, url in urls.items()]
    return checks


def _check_reachable(name: str, url: str, timeout: float) -> Check:
    try:
        path = urllib.parse.urlsplit(url)
        link = Link(f"{path.scheme}://{path.netloc}")
        try:
            query = f"?{path.query}" if path.query else ""
            answer = link.ask(
                "GET", (path.path or "/") + query, {"User-Agent": "runner-agent"}, None, timeout
            )
        finally:
            link.close()
    except (TryAgain, BadSettings, ValueError) as error:
        return Check(name, False, str(error)[:200])
    return Check(name, answer.status < 500, f"answered {answer.status}")


def _check_runner(host: Host) -> Check:
    program = runner_program(host)
    if not os.access(program, os.R_OK):
        return Check("runner", False, "the runner is not installed")
    if WINDOWS:
        return Check("runner", True, "installed")
    try:
        runner_account(host)
    except BadSettings as error:
        return Check("runner", False, str(error))
    return Check("runner", True, "installed")


def _check_version(host: Host, timeout: float) -> Check:
    """Check that the listener starts; the detail is its version. `timeout`: real seconds.

    `--version` needs no registration (Runner.cs). A slow listener passes.
    """
    program = "Runner.Listener.exe" if WINDOWS else "Runner.Listener"
    argv = [os.path.join(host.runner_directory, "bin", program), "--version"]
    try:
        identity, variables = runner_account(host)
        done = subprocess.run(  # noqa: S603 - a fixed program of the image
            argv,
            check=False,
            cwd=host.runner_directory,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            **identity,
        )
    except subprocess.TimeoutExpired:
        return Check("runner_version", True, f"not known: no answer in {VERSION_TIMEOUT:g} s")
    except (OSError, BadSettings, subprocess.SubprocessError) as error:
        return Check("runner_version", False, f"{program} does not start: {type(error).__name__}")
    lines = done.stdout.splitlines()
    last = readable(lines[-1]) if lines else ""
    if done.returncode != 0:
        return Check("runner_version", False, f"{program} exited with {done.returncode}: {last}")
    if not last[:1].isdigit() or not is_name(last) or len(last) > MOST_VERSION:
        return Check("runner_version", True, "not known: the answer is not a version")
    return Check("runner_version", True, last)


def check_image(host: Host, clock: Clock) -> list[Check]:
    """Run the image's program as the user of the runner, which shows whether jobs may open the devices.

    Without such a program, and on Windows, there is no check.
    """
    path = host.root + PROGRAM
    if WINDOWS or not os.path.lexists(path):
        return []
    try:
        identity, variables = runner_account(host)
        environment = {**os.environ, **variables}
        done = run_program(
            [path], clock.real_timeout(IMAGE_CHECK), env=environment, cwd="/", **identity
        )
    except (BadSettings, NotInstalled, NoUsableAnswer) as error:
        return [Check("image", False, str(error))]
    detail = last_line(done.text)
    if done.status != 0:
        return [Check("image", False, f"exited with {done.status}: {detail}")]
    return [Check("image", True, detail)]


RESOLV_CONF = "/etc/resolv.conf"
"""The name servers that the resolver asks (resolv.conf(5))."""

RESOLVED_CONF = "/run/systemd/resolve/resolv.conf"
"""The name servers behind systemd-resolved (systemd-resolved.service(8))."""

RESOLVED = "127.0.0.53"
"""The address at which systemd-resolved answers."""


def check_dns(urls: Iterable[str], root: str) -> Check:
    """Return the check of the names in these URLs. A machine behind a proxy needs only the proxy's name.

    `root`: where the files of the resolver are. The resolver's own limits of time apply (resolv.conf(5)).
    """
    found: list[str] = []
    problems: list[str] = []
    # A dictionary, because all URLs may need the same proxy.
    for name in dict.fromkeys(name for url in urls if (name := name_to_resolve(url))):
        try:
            socket.getaddrinfo(name, None)
        # UnicodeError: a label of the name is longer than 63 characters.
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not a valid name"
            problems.append(f"{name} does not resolve: {why}")
        else:
            found.append(name)
    if problems:
        problems.append(f"asked {name_servers(root)}")
    return verdict("dns", problems, ", ".join(found) or "no name is needed")


def name_to_resolve(url: str) -> str:
    """Return the host to which a request to this URL connects, or an empty text if none is possible."""
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname or "", parts.port or 443
        proxy = proxy_for(host, port) if parts.scheme == "https" else None
    except (ValueError, BadSettings):
        return ""
    if parts.scheme not in ("http", "https"):
        return ""
    return proxy[0] if proxy else host


def name_servers(root: str) -> str:
    """Return the name servers that this machine asks, for people. Windows keeps them in no file."""
    servers = _nameservers(root + RESOLV_CONF)
    if RESOLVED in servers:
        servers += [f"behind it {one}" for one in _nameservers(root + RESOLVED_CONF)]
    if not servers:
        return "an unknown name server"
    return ("name server " if len(servers) == 1 else "name servers ") + ", ".join(servers)


def _nameservers(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file.read(MOST_SETTINGS).splitlines()]
    except OSError:
        return []
    return [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]
