"""Imports the official client library, which has 900 modules and takes two seconds of CPU."""

import importlib
import threading

_LOCK = threading.Lock()


def import_library() -> None:
    """Import what the provider uses. Blocks: call it in a thread.

    One thread at a time: the library's packages import one another in circles. If two threads import two of
    them at once, one thread gets a `_DeadlockError` (CPython, `importlib._bootstrap`).
    """
    with _LOCK:
        importlib.import_module("kubernetes.aio.client")
        importlib.import_module("kubernetes.aio.config")
