"""How busy this host is, and how fast a laboratory's clock may therefore run."""

import time

_SPIN = 0.25


def slowness() -> float:
    """Return how many real seconds a second of computing takes on this host now: 1.0 on a quiet one.

    It takes 0.25 s of CPU time to find out.
    """
    began, cpu = time.perf_counter(), time.thread_time()
    while time.thread_time() - cpu < _SPIN:
        pass
    return max(1.0, (time.perf_counter() - began) / (time.thread_time() - cpu))
