"""Decides whether a runner that was started continues."""

from __future__ import annotations

import collections

from autoscaler.agent.limits import NO_JOB, NO_WORKER, RELEASE_AGAIN, WORKER_GONE
from autoscaler.agent.runner.listener_log import Signs

# Constants.cs, ReturnCode. run.sh returns 7 only where this variable is "1" (run-helper.sh.template,
# since 2.333.0); without it, and for most other codes of the listener, it returns 0.
DEPRECATED_EXIT = 7
DEPRECATED_EXIT_VARIABLE = "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE"

ExitCause = collections.namedtuple("ExitCause", ("reason", "detail"))
"""Why the runner ended: a reason of docs/bootstrap.md ("Exit reasons"), and text for people."""


class Watch:
    """Decides from the signs of the runner whether to continue. Pure: the caller passes the time."""

    RELEASE = "release"

    def __init__(self, started: float) -> None:
        self._message_at: float | None = None
        self._worker_seen = False
        self._worker_gone_at: float | None = None
        self._release_at = started + NO_JOB
        self._error = ""

    @property
    def job_possible(self) -> bool:
        """Return whether there were signs of a job, so that a worker runs or may still start."""
        return self._worker_seen or self._message_at is not None

    def decide(self, now: float, signs: Signs) -> str | ExitCause | None:
        """Return None to continue, RELEASE to release the registration, or why to power off."""
        self._error = signs.error
        if signs.message and not self._worker_seen:
            self._message_at = now
        if signs.worker:
            self._worker_seen, self._worker_gone_at = True, None
            return None
        if signs.finished:
            self._worker_seen = True
        idle = not self.job_possible
        if idle and (signs.deprecated or signs.exited == DEPRECATED_EXIT):
            return self.cause("version_deprecated", "GitHub refuses the runner's version")
        if idle and signs.refused:
            return self.cause("registration_refused", "GitHub refuses the registration")
        if signs.exited is not None:
            return self.cause("exited", f"the runner exited with status {signs.exited}")
        if self._worker_seen:
            self._worker_gone_at = now if self._worker_gone_at is None else self._worker_gone_at
            return self._after(
                now, self._worker_gone_at, WORKER_GONE, "the worker is gone, the listener stays"
            )
        if self._message_at is not None:
            return self._after(
                now, self._message_at, NO_WORKER, "a job message came, but no worker"
            )
        return self.RELEASE if now >= self._release_at else None

    def cause(self, reason: str, detail: str) -> ExitCause:
        """Return the cause, with the listener's last error in its text if there was no job."""
        if self._error and not self.job_possible:
            return ExitCause(reason, f"{detail}: {self._error}")
        return ExitCause(reason, detail)

    def unused_cause(self, detail: str) -> ExitCause:
        """Return the cause for a runner without a job: `not_connected` after an error, else `unused`."""
        return self.cause("not_connected" if self._error else "unused", detail)

    def postpone_release(self, now: float) -> None:
        """Try the release again later, because it did not happen now."""
        self._release_at = now + RELEASE_AGAIN

    @staticmethod
    def _after(now: float, since: float, limit: float, why: str) -> ExitCause | None:
        return ExitCause("hung", why) if now - since >= limit else None
