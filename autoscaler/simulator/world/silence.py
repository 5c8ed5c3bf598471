"""Telemetry that discards everything. The checks read the world instead."""


class Silence:
    """Implements the Telemetry port."""

    def _hear(self, *said: object, **named: object) -> None:
        """Discard it."""

    github_call = github_budget = github_staleness = github_unwatched = _hear
    provider_call = launches = launch_failures = _hear
    delivery = bootstrap = job_started = job_completed = job_unmatched = _hear
    notice = machine_interrupted = machine_terminated = runner_exited = rerun = _hear
    job_refused = job_outside_access = runner_group = _hear
    loop_pass = event_loop_lag = fleet = prices = quotas = _hear
