"""How fast a laboratory's clock may run on a busy host."""

from lab.pace import slowness

PATIENCE = 100.0
"""Seconds on a quiet host, for what takes 20 there. A net for what would hang: nothing is measured by it."""

_LONGEST = 900.0
"""Real seconds for one wait on any host, so that a wait that would hang can say why."""

_measured = [1.0]


def yielding(scale: float) -> float:
    """A clock's scale, slowed by as much as the host is: deadlines of the lab leave the same work time.

    Take it when the laboratory starts. Real time that the scale divides comes out longer by as much.
    """
    _measured.append(slowness())
    return scale / _measured[-1]


def stretched(patience: float) -> float:
    """Return the real seconds to wait for what takes `patience` seconds on a quiet host.

    The host may be busier later than when a laboratory started, so this is five times as long as measured,
    but not longer than a quarter of an hour.
    """
    return min(_LONGEST, 5.0 * patience * _measured[-1])
