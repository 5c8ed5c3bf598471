"""Ends a build of Packer whose machine has ended, or that takes too long.

Packer itself waits, for example for a machine to answer or to stop, and in some of these states it does not
notice that the machine is gone.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from autoscaler.model.identifiers import Seconds

POLL: Seconds = 15.0
"""Seconds between two looks at the build machine."""

AFTER_MACHINE: Seconds = 600.0
"""How long Packer may run on after its machine ended: it deletes its key and its security group. A machine that
is silent for five minutes ends the build anyway (`ssh_read_write_timeout` of the templates)."""

LIMIT: Seconds = 3 * 3600.0
"""How long a build may take. The slowest step builds a GPU driver, within `DRIVER_BUDGET`."""

TO_CLEAN_UP: Seconds = 600.0
"""How long Packer may take to clean up after an interrupt, before it is killed."""

_KILLED = (
    "Packer did not clean up, and was killed: delete its key pair and its security group, whose names "
    "begin with packer_"
)

_ENDED = frozenset({"shutting-down", "terminated"})


@dataclass(slots=True)
class BuildWatch:
    """Watches one build. `machine_state` returns the state of its machine; None if that is unknown.

    The caller sets `interrupted` when it interrupts Packer. `reason` says why this watch did so, or killed
    Packer; it is empty if it did neither.
    """

    machine_state: Callable[[], str | None]
    now: Callable[[], Seconds] = time.monotonic
    poll: Seconds = POLL
    interrupted: bool = field(default=False, init=False)
    reason: str = field(default="", init=False)
    _ended_at: Seconds | None = field(default=None, init=False)

    def run(
        self, finished: threading.Event, interrupt: Callable[[], None], kill: Callable[[], None]
    ) -> None:
        """Watch until the build is `finished`: interrupt it for a reason, and kill it if that does not help."""
        began, interrupted_at = self.now(), None
        while not finished.wait(self.poll):
            now = self.now()
            if not self.interrupted:
                self.reason = self._reason(now, began)
                if self.reason:
                    self.interrupted = True
                    interrupt()
            if self.interrupted:
                interrupted_at = now if interrupted_at is None else interrupted_at
                if now - interrupted_at >= TO_CLEAN_UP:
                    self.reason = f"{self.reason or 'the build was interrupted'}; {_KILLED}"
                    kill()
                    return

    def _reason(self, now: Seconds, began: Seconds) -> str:
        if now - began >= LIMIT:
            return f"the build took longer than {LIMIT / 3600:g} hours"
        state = self.machine_state()
        if state in _ENDED:
            self._ended_at = now if self._ended_at is None else self._ended_at
        if self._ended_at is not None and now - self._ended_at >= AFTER_MACHINE:
            minutes = f"{AFTER_MACHINE / 60:g} minutes"
            return f"the build machine ended {minutes} ago, and Packer still waits"
        return ""
