"""The agent in a pod, as the first process of the container `runner`.

It has the whole life of a machine: the attestation, the health checks, the wait for an assignment, the runner.
Only this container has the pod's accelerators. Kubelet may kill a pod whose init container had devices, too,
when it starts again (kubernetes/kubernetes#138446). The end of the pod is the end of the machine, so nothing
powers it off.
"""

from __future__ import annotations

import os
import signal

from autoscaler.agent.actions import BadSettings, PowerOff, Stopped
from autoscaler.agent.boot.bootstrap_client import connect
from autoscaler.agent.boot.identity import token_proof
from autoscaler.agent.clock import Clock
from autoscaler.agent.host import Host, read_trusted, refuse_second_boot
from autoscaler.agent.journal import log_line
from autoscaler.agent.lifecycle import Agent
from autoscaler.agent.runner.account import with_node_driver
from autoscaler.agent.runner.linux import LinuxRunner
from autoscaler.agent.runner.listener_log import Signs

# The provider mounts these folders (manifests.py); a test compares the paths.
AGENT_FOLDER = "/run/runner-agent"
IDENTITY_TOKEN = "/run/runner-identity/token"  # noqa: S105 - a path

# The provider sets this variable if the job's own pod has the accelerators and checks them (job_pods.py).
ACCELERATORS = "RUNNER_AGENT_ACCELERATORS"
IN_JOB_POD = "in-job-pod"

# GitHub's image actions/actions-runner has the runner here (actions/runner, images/Dockerfile).
POD_RUNNER_DIRECTORY = "/home/runner"

# prctl(2): the attribute that execve(2) sets to 1.
PR_SET_DUMPABLE = 4


def live_in_pod(host_path: str) -> int:
    """Run the agent, and return the container's exit status: 0 after the runner's end, whatever its job did."""
    refuse_inspection()
    try:
        host = pod_host(host_path)
        os.environ.update(with_node_driver(os.environ, host.root))
        return live(host)
    except Stopped as reason:
        log_line(f"stopped: {reason}")
    except (PowerOff, BadSettings) as reason:
        log_line(f"ending: {reason}")
    return 1


def pod_host(path: str) -> Host:
    """Return the settings of a pod: the image's host file over a pod's own defaults.

    Raises BadSettings.
    """
    host = Host({"runner_directory": POD_RUNNER_DIRECTORY, **(read_trusted(path) or {})})
    host.state = host.root + AGENT_FOLDER
    host.hooks = os.path.join(host.state, "hooks")
    host.has_accelerators = os.environ.get(ACCELERATORS) != IN_JOB_POD
    return host


def live(host: Host) -> int:
    """Run the agent to the end of its runner; return 0. Raises PowerOff, BadSettings before the runner."""
    refuse_second_boot(host)
    clock = Clock(host.time_scale)
    controller = connect(
        os.path.join(host.state, "controller.json"),
        lambda: token_proof(host.root + IDENTITY_TOKEN),
        clock,
    )
    agent = Agent(host, clock, controller, PodRunner)
    signal.signal(signal.SIGTERM, agent.stop)
    assignment = agent.wait_for_assignment()
    try:
        agent.run(assignment)
    except Stopped:
        raise
    except PowerOff as reason:
        log_line(f"ending: {reason}")
    return 0


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


def refuse_inspection() -> None:
    """Make this process one that others of its user cannot read or trace.

    Its environment, memory, open files and root folder in /proc then belong to root, and ptrace(2) needs a
    capability that no job has (proc(5), ptrace(2): access mode checks). Programs that it starts are not
    concerned: execve(2) sets the attribute again.
    """
    try:
        # Loaded in pods only: on a machine of its own, the agent is root, and its runner is not.
        import ctypes

        failed = ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0
    except (ImportError, AttributeError, OSError) as error:
        # Some builds of Python have no ctypes. The job can then read the agent's nonce.
        log_line(f"a job can inspect the agent: {error}")
        return
    if failed:
        log_line("a job can inspect the agent: prctl failed")
