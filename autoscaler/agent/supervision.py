"""Decides whether a runner that was started continues."""

from __future__ import annotations

from autoscaler.agent.exit_reasons import DEPRECATED_EXIT, Left
from autoscaler.agent.limits import NO_JOB, NO_WORKER, RELEASE_AGAIN, WORKER_GONE
from autoscaler.agent.listener_log import Signs


class Watch:
    """Decides from the signs of the runner whether to continue. Pure: the caller passes the time."""

    RELEASE = "release"

    def __init__(self, started: float) -> None:
        self._message: float | None = None
        self._worked = False
        self._gone: float | None = None
        self._ask_at = started + NO_JOB
        self._error = ""

    @property
    def job_possible(self) -> bool:
        """Return whether there were signs of a job, so that a worker runs or may still start."""
        return self._worked or self._message is not None

    def decide(self, now: float, signs: Signs) -> str | Left | None:
        """Return None to continue, RELEASE to release the registration, or why to power off."""
        self._error = signs.error
        if signs.message and not self._worked:
            self._message = now
        if signs.worker:
            self._worked, self._gone = True, None
            return None
        if signs.finished:
            self._worked = True
        idle = not self.job_possible
        if idle and (signs.deprecated or signs.exited == DEPRECATED_EXIT):
            return self.left("version_deprecated", "GitHub refuses the runner's version")
        if idle and signs.refused:
            return self.left("registration_refused", "GitHub refuses the registration")
        if signs.exited is not None:
            return self.left("exited", f"the runner exited with status {signs.exited}")
        if self._worked:
            self._gone = now if self._gone is None else self._gone
            return self._after(
                now, self._gone, WORKER_GONE, "the worker is gone, the listener stays"
            )
        if self._message is not None:
            return self._after(now, self._message, NO_WORKER, "a job message came, but no worker")
        return self.RELEASE if now >= self._ask_at else None

    def left(self, reason: str, detail: str) -> Left:
        """Return why the runner has left, with the listener's last error if there was no job."""
        if self._error and not self.job_possible:
            return Left(reason, f"{detail}: {self._error}")
        return Left(reason, detail)

    def left_unused(self, detail: str) -> Left:
        """Return why a runner without a job leaves: it got none, or its last word was an error."""
        return self.left("not_connected" if self._error else "unused", detail)

    def ask_again(self, now: float) -> None:
        """The release did not happen: ask again later."""
        self._ask_at = now + RELEASE_AGAIN

    @staticmethod
    def _after(now: float, since: float, limit: float, why: str) -> Left | None:
        return Left("hung", why) if now - since >= limit else None
