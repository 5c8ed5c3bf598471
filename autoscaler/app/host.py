"""What the process asks of its host: the quicker event loop, all connections that are allowed, a
folder for the agents."""

import asyncio
import resource
import sys
from pathlib import Path

import structlog

from autoscaler.server.agents import keep_agent

_log = structlog.get_logger(__name__)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def raise_file_limit() -> None:
    """A parked machine holds a connection: use what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def file_limit() -> int:
    """Return how many file descriptors this process may have open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def keep_agent_beside(store: Path | None, agent: bytes) -> tuple[bytes, ...]:
    """Keep this version's agent in `STORE.agents`; the earlier ones that are there.

    Without a file to be beside, or where the folder will not do, there are none: the machines that
    an upgrade finds half-way through their boot then end at their deadline and are replaced.
    """
    if store is None:
        return ()
    try:
        return keep_agent(store.with_name(f"{store.name}.agents"), agent)
    except OSError as error:
        _log.warning("agent_not_kept", error=str(error))
        return ()
