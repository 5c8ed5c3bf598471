"""Telemetry that discards everything, because the invariants read the world instead."""


class NoTelemetry:
    """Implements the Telemetry port."""

    def _discard(self, *values: object, **named_values: object) -> None:
        """Discard it."""

    github_call = github_clock = github_budget = github_staleness = github_unwatched = _discard
    provider_call = launches = launch_failures = _discard
    delivery = bootstrap = job_started = job_completed = job_unmatched = _discard
    notice = machine_interrupted = machine_terminated = runner_exited = rerun = _discard
    job_refused = job_outside_access = runner_group = health_check_failed = _discard
    runner_deadline = _discard
    job_waited = job_failed = machine_used = machine_launched = run_time = run_ended = _discard
    offering_refused = _discard
    store_write = store_size = offerings_on_hold = delivery_lag = _discard
    reconciliation = event_loop_lag = fleet = prices = quotas = _discard
