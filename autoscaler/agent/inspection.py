"""Keeps the agent's memory from the processes of the job, which have its user in a pod."""

from __future__ import annotations

from autoscaler.agent.journal import log_line

# prctl(2): the attribute that execve(2) sets to 1.
PR_SET_DUMPABLE = 4


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
