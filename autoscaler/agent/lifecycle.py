"""One machine's lifecycle, from the attestation to the power-off."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

from autoscaler.agent.actions import (
    AttestAgain,
    BadSettings,
    PowerOff,
    Stopped,
    TryAgain,
)
from autoscaler.agent.boot.boot_script import check_boot_script
from autoscaler.agent.boot.bootstrap_client import Assignment, Controller
from autoscaler.agent.checks.machine import check_machine
from autoscaler.agent.clock import Backoff, Clock, uniform
from autoscaler.agent.driver.installation import install_wanted_driver
from autoscaler.agent.hooks.job_hooks import install_hooks
from autoscaler.agent.host import Host
from autoscaler.agent.installing.runner import install_wanted_runner
from autoscaler.agent.journal import log_line
from autoscaler.agent.limits import (
    EXIT_REPORT,
    HEARTBEAT,
    PATIENCE,
    POLL_WAIT,
    RETRY_FIRST,
    STOP,
    SUSPEND,
)
from autoscaler.agent.runner.supervision import ExitCause, Watch

if sys.platform == "win32":
    from autoscaler.agent.runner.windows import WindowsRunner

    Runner = WindowsRunner
else:
    from autoscaler.agent.runner.linux import LinuxRunner

    Runner = LinuxRunner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from autoscaler.agent.verdicts import Check

ENDED = "the controller answered that this machine has ended"


class Agent:
    """One machine's lifecycle, from the attestation to the power-off. `runner` creates the runner."""

    def __init__(
        self,
        host: Host,
        clock: Clock,
        controller: Controller,
        runner: Callable[[Host], Any] = Runner,
    ) -> None:
        self._host = host
        self._clock = clock
        self._controller = controller
        self._make_runner = runner
        self._backoff = Backoff()
        self._heartbeat_at: float | None = None
        self._closed = ""
        self._supervising = False
        self._stop_by: float | None = None

    def stop(self, *_signal: object) -> None:
        """Handle SIGTERM: give a runner that was started `STOP` seconds to exit.

        Raises Stopped if no runner was started.
        """
        if not self._supervising:
            raise Stopped("the machine is being shut down")
        if self._stop_by is None:
            self._stop_by = self._clock.now() + STOP

    def live(self) -> NoReturn:
        """Run the whole lifecycle. Ends by raising PowerOff with the reason."""
        self.run(self.wait_for_assignment())

    def run(self, assignment: Assignment) -> NoReturn:
        """Run the runner to its end and report its exit. Ends by raising PowerOff with the reason."""
        if self._heartbeat_at is None:
            self._heartbeat_at = self._clock.now() + HEARTBEAT
        runner = self._make_runner(self._host)
        try:
            self._write_marker()
            self._supervising = True
            runner.start(assignment.jit_config, install_hooks(self._host, assignment.job))
        except (OSError, BadSettings, subprocess.SubprocessError) as error:
            cause = ExitCause(
                "not_started", f"the runner could not be started: {type(error).__name__}"
            )
        else:
            log_line(f"runner {assignment.runner} started")
            cause = self.supervise(runner)
        if self._stop_by is not None:
            self.report_exit(cause, 0.0)
            raise Stopped(cause.detail)
        self.report_exit(cause)
        raise PowerOff(cause.detail)

    def wait_for_assignment(self) -> Assignment:
        """Attest, run the health checks and poll until a registration is acknowledged. Raises PowerOff."""
        ready = False
        retry_after: float | None = None
        waiting = False
        while True:
            try:
                if waiting:
                    waiting = False
                    self._pause(retry_after)
                if not ready:
                    self._attest_and_check()
                    ready = True
                assignment = self._poll()
                if assignment is not None:
                    self._acknowledge(assignment)
                    return assignment
                self._backoff.reset()
            except AttestAgain as reason:
                self._controller.machine = None
                ready, waiting, retry_after = False, True, None
                log_line(f"attest again: {reason}")
            except TryAgain as reason:
                waiting, retry_after = True, reason.retry_after
                log_line(f"again: {reason}")

    def _attest_and_check(self) -> None:
        health_checks = self._controller.attest()
        if self._heartbeat_at is None:
            self._heartbeat_at = self._clock.now() + HEARTBEAT
        checks = []
        if all(check.ok for check in check_boot_script(self._host)):
            checks += self._install(health_checks)
        else:
            self._controller.report("stage", {"stage": "boot_script_failed"})
        if all(check.ok for check in checks):
            self._controller.report("stage", {"stage": "health_checks"})
            checks += check_machine(health_checks, self._controller.skew, self._host, self._clock)
        found = [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in checks]
        failed = [check.name for check in checks if not check.ok]
        self._controller.report("health-checks", {"passed": not failed, "checks": found})
        if failed:
            raise PowerOff(f"the health checks failed: {', '.join(failed)}")

    def _install(self, health_checks: dict[str, Any]) -> list[Check]:
        """Install the runner and the driver, as far as the controller's parameters name them."""
        began = self._clock.now()
        settings = (health_checks, self._host, self._clock, self._report_stage)
        checks = install_wanted_runner(*settings)
        if all(check.ok for check in checks):
            checks += install_wanted_driver(*settings, spent=self._clock.now() - began)
        return checks

    def _report_stage(self, stage: str) -> None:
        """Report a stage of an installation, which continues without an answer. Raises PowerOff."""
        log_line(f"stage: {stage}")
        try:
            self._controller.report("stage", {"stage": stage})
        except (TryAgain, AttestAgain) as reason:
            log_line(f"the stage could not be reported: {reason}")

    def _poll(self) -> Assignment | None:
        self._heartbeat()
        begun = self._clock.now()
        due = POLL_WAIT if self._heartbeat_at is None else self._heartbeat_at - begun
        assignment = self._controller.poll(max(1.0, min(POLL_WAIT, due)))
        if assignment is None and self._clock.now() - begun < RETRY_FIRST:
            # An immediate answer must not cause a busy loop.
            self._clock.sleep(RETRY_FIRST * (0.5 + uniform() / 2))
        return assignment

    def _acknowledge(self, assignment: Assignment) -> None:
        """Repeat until it is answered. A poll instead would have the registration replaced."""
        while True:
            try:
                self._controller.report("acknowledge", {"runner": assignment.runner})
            except TryAgain as reason:
                self._pause(reason.retry_after)
            else:
                return

    def _pause(self, retry_after: float | None) -> None:
        """Wait before the next try, or power off after PATIENCE."""
        end = self._controller.answered_at + PATIENCE
        until = min(end, self._clock.now() + self._backoff.next(retry_after))
        while self._clock.now() < until:
            self._heartbeat()
            due = (
                until
                if self._heartbeat_at is None
                else max(self._heartbeat_at, self._clock.now() + 0.1)
            )
            self._clock.sleep(min(until, due) - self._clock.now())
        if self._clock.now() >= self._controller.answered_at + PATIENCE:
            raise PowerOff("no answer that knows this machine for 15 minutes")

    def _heartbeat(self) -> None:
        """Send a heartbeat if it is due. A refusal counts only before the registration."""
        now = self._clock.now()
        if (
            self._heartbeat_at is None
            or now < self._heartbeat_at
            or self._controller.machine is None
        ):
            return
        self._heartbeat_at = now + HEARTBEAT
        try:
            self._controller.report("heartbeat", {})
        except TryAgain:
            return

    def _write_marker(self) -> None:
        """Write the marker, for root only, that this machine's one runner was started."""
        os.makedirs(self._host.state, mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = os.open(self._host.marker, flags, 0o600)
        os.fsync(descriptor)
        os.close(descriptor)

    def supervise(self, runner: Any) -> ExitCause:
        """Supervise the runner to its end, and return why it ended.

        The runner continues while the controller does not answer.
        """
        watch = Watch(self._clock.now())
        tick = max(0.2, 1.0 / self._clock.scale)
        interrupted = False
        while True:
            signs = runner.read_signs(tick)
            decision = watch.decide(self._clock.now(), signs)
            if self._stop_by is not None:
                interrupted = interrupted or runner.interrupt()
                if signs.exited is not None or self._clock.now() >= self._stop_by:
                    decision = ExitCause("stopped", "the machine is being shut down")
                elif not isinstance(decision, ExitCause):
                    continue
            if decision is None and self._closed and not watch.job_possible:
                decision = self._stop_without_job(runner, watch)
            elif decision == Watch.RELEASE:
                decision = self._release(runner, watch)
                watch.postpone_release(self._clock.now())
            if isinstance(decision, ExitCause):
                runner.kill()
                return decision
            self._heartbeat_while_running()

    def _heartbeat_while_running(self) -> None:
        try:
            self._heartbeat()
        except AttestAgain:
            # A new attestation is not possible with a runner; the runner continues.
            return
        except PowerOff:
            self._closed = ENDED

    def _idle(self, runner: Any, watch: Watch) -> bool:
        """Return whether no worker runs and no job message has come. The runner must be stopped."""
        watch.decide(self._clock.now(), runner.read_signs(0.0))
        return not watch.job_possible and not runner.worker_runs()

    def _stop_without_job(self, runner: Any, watch: Watch) -> ExitCause | None:
        """Return why to power off, because no job can come any more; None if one has come meanwhile."""
        runner.suspend()
        if self._idle(runner, watch):
            if self._closed == ENDED:
                return watch.cause("ended", self._closed)
            return watch.unused_cause(self._closed)
        runner.resume()
        return None

    def _release(self, runner: Any, watch: Watch) -> ExitCause | None:
        """Have the idle runner's registration deleted. Return why to power off, or None to continue."""
        limit = SUSPEND / self._clock.scale
        resume_timer = threading.Timer(limit, runner.resume)
        try:
            if not self._controller.may_release():
                return None
            began = time.monotonic()
            resume_timer.start()
            runner.suspend()
            if self._idle(runner, watch):
                left = began + limit - time.monotonic()
                status = self._controller.release(max(0.01, left))
                # A listener that was resumed before the answer may have taken a job.
                if status in (204, 404):
                    if runner.suspended:
                        return watch.unused_cause("no job came, the registration is deleted")
                    self._closed = "the registration is deleted"
        except (TryAgain, AttestAgain):
            log_line("could not ask for the release")
        except PowerOff:
            self._closed = ENDED
        finally:
            resume_timer.cancel()
        runner.resume()
        return None

    def report_exit(self, cause: ExitCause, patience: float = EXIT_REPORT) -> None:
        """Report the runner's exit, trying for at most five minutes; once if `patience` is 0."""
        self._backoff.reset()
        end = self._clock.now() + patience
        while True:
            try:
                self._controller.report("exit", cause._asdict())
            except TryAgain as reason:
                left = end - self._clock.now()
                if left <= 0:
                    log_line("the exit could not be reported")
                    return
                self._clock.sleep(min(left, self._backoff.next(reason.retry_after)))
            except (AttestAgain, PowerOff) as reason:
                log_line(f"the exit report was refused: {reason}")
                return
            else:
                return
