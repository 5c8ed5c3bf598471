"""Defines the metrics of jobs, machines, costs and repositories. docs/metrics.md lists all metrics."""

from collections.abc import Iterable

from prometheus_client import Gauge

from autoscaler.model.accounting import RunState, WaitStage
from autoscaler.model.identifiers import SkuName
from autoscaler.model.reasons.table import Unmatched
from autoscaler.model.wait_objectives import WAIT_BUCKETS
from autoscaler.observability.registry import Registry

RUN_BUCKETS = (60, 300, 600, 1200, 1800, 3600, 5400, 7200, 10800, 14400, 21600, 43200, 86400)
"""Seconds. A push to PyTorch takes 3 hours at the median."""


class Series:
    """The metrics of jobs and machines."""

    def __init__(self, registry: Registry, skus: Iterable[SkuName]) -> None:
        """`skus` are the configured names."""
        self._make_jobs(registry)
        self._make_machines(registry)
        self._make_use(registry)
        self._make_repositories(registry)
        self.shown: dict[tuple[Gauge, tuple[str, ...]], float] = {}
        """Present values of the gauges that `Telemetry.fleet` sets."""
        self._show_zeroes(tuple(skus))

    def _make_jobs(self, registry: Registry) -> None:
        self.queue_seconds = registry.histogram(
            "job_queue_duration_seconds", "Time from queued to in progress.", ("sku",), WAIT_BUCKETS
        )
        self.waiting = registry.gauge("jobs_waiting", "Jobs that wait for a runner.", ("sku",))
        self.waiting_reasons = registry.gauge(
            "jobs_waiting_by_reason", "Jobs that wait, by the reason.", ("sku", "reason")
        )
        self.oldest_waiting = registry.gauge(
            "oldest_waiting_job_age_seconds",
            "Age of the oldest job that waits for a runner.",
            ("sku",),
        )
        self.unmatched = registry.counter(
            "jobs_unmatched", "Queued jobs that no SKU serves.", ("reason",)
        )
        self.in_progress = registry.gauge("jobs_in_progress", "Jobs in progress.", ("sku",))
        self.completed = registry.counter(
            "jobs_completed", "Completed jobs.", ("sku", "conclusion")
        )
        self.refused = registry.counter(
            "jobs_refused", "Jobs that no SKU with their labels may run.", ("sku", "reason")
        )
        self.outside_access = registry.counter(
            "jobs_outside_access",
            "Jobs that ran on a machine whose SKU's access does not admit them.",
            ("sku", "reason"),
        )
        self.awaiting_approval = registry.gauge(
            "jobs_awaiting_approval", "Jobs that GitHub holds back.", ("sku",)
        )
        self.wait_seconds = registry.counter(
            "job_wait_seconds", "Time that jobs waited, by stage.", ("sku", "stage")
        )
        self.stage_seconds = registry.histogram(
            "job_wait_stage_duration_seconds",
            "Time that a job waited in a stage.",
            ("stage",),
            WAIT_BUCKETS,
        )
        self.failed = registry.counter("jobs_failed", "Failed jobs, by cause.", ("sku", "cause"))
        self.run_seconds = registry.counter(
            "workflow_run_seconds", "Time in which workflow runs had open jobs.", ("state",)
        )
        self.run_duration = registry.histogram(
            "workflow_run_duration_seconds",
            "Time in which a workflow run had open jobs without a pause.",
            (),
            RUN_BUCKETS,
        )

    def _make_machines(self, registry: Registry) -> None:
        self.machines = registry.gauge(
            "machines", "Machines and unanswered slots, by state.", ("sku", "state")
        )
        self.foreign = registry.gauge(
            "machines_foreign",
            "Machines with this fleet's name and the ID of another installation.",
            (),
        )
        self.unverified = registry.gauge(
            "machines_unverified",
            "Machines that may be running a job, as far as the store shows.",
            (),
        )
        self.not_terminating = registry.gauge(
            "machines_not_terminating",
            "Machines that still exist after three requests to terminate them.",
            (),
        )
        self.runners = registry.gauge("runners", "Registrations, by state.", ("sku", "state"))
        self.launches = registry.counter(
            "launches", "Requested machines.", ("sku", "provider", "capacity_type")
        )
        self.launched = registry.counter(
            "machines_launched",
            "Machines that a provider launched.",
            ("provider", "capacity_type", "zone"),
        )
        self.failures = registry.counter(
            "launch_failures",
            "Slots and machines that failed before they became ready.",
            ("sku", "provider", "capacity_type", "reason"),
        )
        self.offerings_refused = registry.counter(
            "offerings_refused",
            "Offerings that a provider refused in its answers to launch requests.",
            ("provider", "capacity_type", "zone", "reason"),
        )
        self.holds = registry.gauge(
            "offerings_on_hold",
            "Offerings of the launch options that are on hold.",
            ("provider", "capacity_type", "reason"),
        )
        self.ended = registry.counter(
            "machines_terminated",
            "Machines that end, by the reason.",
            ("sku", "reason"),
        )
        self.health_checks = registry.counter(
            "health_checks_failed",
            "Machines that failed their health checks, by the first check that failed and the image.",
            ("sku", "check", "image"),
        )
        self.exits = registry.counter(
            "runner_exits",
            "Runners that exited, by the reason that their machines report.",
            ("sku", "reason"),
        )
        self.runner_deadline = registry.gauge(
            "runner_version_deadline_timestamp_seconds",
            "Unix time from which GitHub gives no jobs to the runner version of the SKU's machines.",
            ("sku",),
        )
        self.circuit_open = registry.gauge(
            "sku_circuit_open", "1 while the circuit breaker of the SKU is open.", ("sku",)
        )
        self.option_circuit_open = registry.gauge(
            "launch_option_circuit_open",
            "1 while the circuit breaker of a launch option of the SKU is open.",
            ("sku", "provider"),
        )
        self.node_avoided = registry.gauge(
            "node_avoided",
            "1 while the SKU avoids this node, because machines failed on it.",
            ("sku", "provider", "node"),
        )
        self.interrupted = registry.counter(
            "machines_interrupted",
            "Machines that their provider interrupts, or may interrupt.",
            ("sku", "kind"),
        )
        self.reruns = registry.counter(
            "jobs_interrupted",
            "Jobs whose machine was interrupted while they ran.",
            ("sku", "outcome"),
        )

    def _make_use(self, registry: Registry) -> None:
        use = ("sku", "use")
        self.machine_seconds = registry.counter(
            "machine_seconds", "Time of machines, by what it bought.", use
        )
        self.machine_dollars = registry.counter(
            "machine_dollars", "Cost of machines in US dollars, by what it bought.", use
        )
        self.dollars = registry.gauge(
            "cost_dollars_per_hour", "Present cost of the machines, in US dollars per hour.", ()
        )

    def _make_repositories(self, registry: Registry) -> None:
        one = ("repository",)
        self.repository_queue_seconds = registry.histogram(
            "repository_job_queue_duration_seconds",
            "Time from queued to in progress, of the repositories in metrics.repositories.",
            one,
            WAIT_BUCKETS,
        )
        self.repository_completed = registry.counter(
            "repository_jobs_completed", "Completed jobs of a repository.", (*one, "conclusion")
        )
        self.repository_run_seconds = registry.counter(
            "repository_workflow_run_seconds",
            "Time in which workflow runs of a repository had open jobs.",
            (*one, "state"),
        )
        self.repository_seconds = registry.counter(
            "repository_machine_seconds", "Time of machines at the jobs of a repository.", one
        )
        self.repository_dollars = registry.counter(
            "repository_machine_dollars", "Cost of this time in US dollars.", one
        )

    def _show_zeroes(self, skus: tuple[SkuName, ...]) -> None:
        """Let the series exist whose number does not grow with SKUs times reasons (docs/metrics.md)."""
        for reason in Unmatched:
            self.unmatched.labels(reason.value)
        for stage in WaitStage:
            self.stage_seconds.labels(stage.value)
        for state in RunState:
            self.run_seconds.labels(state.value)
        for sku in skus:
            self.queue_seconds.labels(sku)
            self._show(self.waiting, sku)
            self._show(self.oldest_waiting, sku)
            self._show(self.in_progress, sku)
            self._show(self.circuit_open, sku)

    def _show(self, gauge: Gauge, *labels: str) -> None:
        gauge.labels(*labels).set(0)
        self.shown[gauge, labels] = 0
