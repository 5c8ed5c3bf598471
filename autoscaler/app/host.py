"""The host's resources: the faster event loop, the limit of open files, a folder for the agents."""

import asyncio
import resource
import sys
from pathlib import Path

import structlog

from autoscaler.server.machines.agents import keep_agent

_log = structlog.get_logger(__name__)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop if it is installed, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def raise_file_limit() -> None:
    """Raise the limit of open files to the system's hard limit: each ready machine has a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def file_limit() -> int:
    """Return how many file descriptors this process may have open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def keep_agent_beside(store: Path | None, agent: bytes) -> tuple[bytes, ...]:
    """Store this version's agent in `STORE.agents`; return the earlier agents from there.

    Returns none if there is no store file, or if the folder is not usable. Machines that boot during an
    upgrade then miss their deadline and are replaced.
    """
    if store is None:
        return ()
    try:
        return keep_agent(store.with_name(f"{store.name}.agents"), agent)
    except OSError as error:
        _log.warning("agent_not_kept", error=str(error))
        return ()
