"""The agent's two halves in a pod, one in each container.

`attest`, in the init container of this name, proves the pod's identity, runs the health checks, waits for an
assignment, and writes it to the volume in memory. `run`, in the container `runner`, reads and deletes it, and
supervises the runner. The end of the pod is the end of the machine, so nothing powers it off.

Kubelet starts `runner` only if `attest` exits with status 0 (Kubernetes documentation, "Init Containers").
"""

from __future__ import annotations

import json
import os
import signal

from autoscaler.agent.actions import BadSettings, PowerOff, Stopped
from autoscaler.agent.bootstrap_client import Assignment, Controller
from autoscaler.agent.clock import Clock
from autoscaler.agent.controller_file import connect
from autoscaler.agent.exit_reasons import ExitCause
from autoscaler.agent.host import Host, read_trusted, refuse_second_boot
from autoscaler.agent.identity import token_proof
from autoscaler.agent.inspection import refuse_inspection
from autoscaler.agent.journal import log_line
from autoscaler.agent.lifecycle import Agent
from autoscaler.agent.linux_runner import LinuxRunner
from autoscaler.agent.listener_log import Signs
from autoscaler.agent.node_driver import with_node_driver

# The provider mounts these folders (manifests.py); a test compares the paths.
ASSIGNMENT_FOLDER = "/run/runner-assignment"
IDENTITY_TOKEN = "/run/runner-identity/token"  # noqa: S105 - a path

# GitHub's image actions/actions-runner has the runner here (actions/runner, images/Dockerfile).
POD_RUNNER_DIRECTORY = "/home/runner"


def live_in_pod(half: str, host_path: str) -> int:
    """Run one half, `attest` or `run`, and return the container's exit status."""
    refuse_inspection()
    try:
        host = pod_host(host_path)
        os.environ.update(with_node_driver(os.environ, host.root))
        if half == "attest":
            attest(host)
        else:
            run(host)
    except Stopped as reason:
        log_line(f"stopped: {reason}")
        return 1
    except PowerOff as reason:
        log_line(f"ending: {reason}")
        return 1 if half == "attest" else 0
    except BadSettings as reason:
        log_line(f"ending: {reason}")
        return 1
    return 0


def pod_host(path: str) -> Host:
    """Return the settings of a pod: the image's host file over a pod's own defaults.

    Raises BadSettings.
    """
    host = Host({"runner_directory": POD_RUNNER_DIRECTORY, **(read_trusted(path) or {})})
    host.state = host.root + ASSIGNMENT_FOLDER
    host.hooks = os.path.join(host.state, "hooks")
    return host


def attest(host: Host) -> None:
    """Get an assignment and write it for the second half. Raises PowerOff, BadSettings."""
    refuse_second_boot(host)
    clock = Clock(host.time_scale)
    controller = connect(
        os.path.join(host.state, "controller.json"),
        lambda: token_proof(host.root + IDENTITY_TOKEN),
        clock,
    )
    agent = Agent(host, clock, controller)
    signal.signal(signal.SIGTERM, agent.stop)
    assignment = agent.wait_for_assignment()
    try:
        write_assignment(host, controller, assignment)
    except OSError as error:
        detail = f"the assignment could not be written: {error.strerror}"
        agent.report_exit(ExitCause("not_started", detail))
        raise PowerOff(detail) from error
    log_line(f"runner {assignment.runner} assigned")


def run(host: Host) -> None:
    """Run the runner that the first half was assigned. Ends by raising PowerOff or BadSettings."""
    clock = Clock(host.time_scale)
    controller = connect(os.path.join(host.state, "controller.json"), no_proof, clock)
    agent = Agent(host, clock, controller, PodRunner)
    signal.signal(signal.SIGTERM, agent.stop)
    agent.run(take_assignment(host, controller))


def write_assignment(host: Host, controller: Controller, assignment: Assignment) -> None:
    """Write the assignment and the session to the volume in memory. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    descriptor = os.open(assignment_file(host), flags, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        json.dump({**controller.session(), **assignment._asdict()}, file)


def take_assignment(host: Host, controller: Controller) -> Assignment:
    """Return the assignment, and delete its file before any job can read it. Raises BadSettings.

    Gives the session to `controller`.
    """
    path = assignment_file(host)
    values = read_trusted(path)
    if values is None:
        raise BadSettings(f"{path}: absent")
    try:
        os.unlink(path)
    except OSError as error:
        raise BadSettings(f"{path}: {error.strerror}") from error
    runner, jit_config = values.get("runner"), values.get("jit_config")
    if not isinstance(runner, str) or not isinstance(jit_config, str):
        raise BadSettings(f"{path}: not an assignment")
    controller.resume(values)
    job = values.get("job")
    return Assignment(runner, jit_config, job if isinstance(job, dict) else {})


def assignment_file(host: Host) -> str:
    """Return the path of the assignment."""
    return os.path.join(host.state, "assignment.json")


def no_proof() -> str:
    """Raise PowerOff: the second half has no proof of identity, and never attests."""
    raise PowerOff("the runner's container has no proof of the pod's identity")


class PodRunner(LinuxRunner):
    """The runner in a container, whose first process is the agent."""

    def read_signs(self, wait: float) -> Signs:
        """Wait for signs of the runner (see `LinuxRunner`). Also reaps orphans."""
        signs = super().read_signs(wait)
        reap_orphans(self._started().pid)
        return signs


def reap_orphans(runner: int) -> None:
    """Reap the ended children except the runner.

    A container's first process gets every orphan (pid_namespaces(7)). Zombies of a long job would use up the
    pod's process IDs.
    """
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid == runner:
            return
        os.waitpid(found.si_pid, os.WNOHANG)
