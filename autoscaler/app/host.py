"""What the process asks of its host: the quicker event loop, and as many connections as are allowed."""

import asyncio
import resource


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
