"""Telemetry for tests of one room, which reports a part of the port."""

from collections.abc import Callable
from typing import Any


class NoTelemetry:
    """Implements Telemetry and fails at every report. A test's own overrides what its room reports."""

    def _fail(self, *said: object, **named: object) -> None:
        raise AssertionError(f"another room reports this: {said} {named}")

    github_call: Callable[..., Any] = _fail
    github_budget = github_staleness = github_unwatched = github_call
    provider_call = launches = launch_failures = github_call
    delivery = bootstrap = job_started = job_completed = job_unmatched = github_call
    notice = machine_interrupted = machine_terminated = runner_exited = rerun = github_call
    job_refused = job_outside_access = runner_group = github_call
    loop_pass = event_loop_lag = fleet = prices = quotas = github_call
