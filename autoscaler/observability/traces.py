"""Exports the traces of jobs with OpenTelemetry, over OTLP/HTTP.

A thread makes the spans, and the SDK's own thread sends them. Both queues are bounded: what does not fit is
dropped and counted in the log.
"""

import queue
import threading
from collections.abc import Mapping

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer, set_span_in_context

from autoscaler.controller.ports.telemetry import WaitTrace
from autoscaler.model.identifiers import Instant, Seconds

QUEUED = 4096
"""Maximum number of traces that wait for the thread."""

CLOSED_WITHIN: Seconds = 10.0
"""How long the spans that wait may take to be sent when the controller stops."""

_SERVICE = "gpu-runner-autoscaler"

_log = structlog.get_logger(__name__)


class OtlpTraces:
    """Implements `TraceTelemetry`. The SDK's environment variables (OTEL_*) configure the export."""

    def __init__(self, fleet: str, version: str, queued: int = QUEUED) -> None:
        """`queued` is the maximum number of traces that wait for the thread, which `start` starts."""
        defaults = {
            "service.name": _SERVICE,
            "service.version": version,
            "service.namespace": fleet,
        }
        # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES replace the defaults.
        given = OTELResourceDetector().detect().attributes
        self._provider = TracerProvider(resource=Resource.create({**defaults, **given}))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer(_SERVICE, version)
        self._waiting: queue.Queue[WaitTrace | None] = queue.Queue(queued)
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)

    def start(self) -> None:
        """Begin to export."""
        self._thread.start()

    def trace_job(self, trace: WaitTrace) -> None:
        """See `TraceTelemetry`."""
        try:
            self._waiting.put_nowait(trace)
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Send what waits, and end the threads. Blocks for 20 s at most, twice `CLOSED_WITHIN`."""
        try:
            self._waiting.put(None, timeout=CLOSED_WITHIN)
        except queue.Full:
            return  # the thread is a daemon, and ends with the process
        self._thread.join(CLOSED_WITHIN)
        self._provider.shutdown()

    def _run(self) -> None:
        while (trace := self._waiting.get()) is not None:
            if self._dropped:
                _log.warning("traces_dropped", count=self._dropped)
                self._dropped = 0
            export(self._tracer, trace)


def export(tracer: Tracer, trace: WaitTrace) -> None:
    """Make the spans of a trace: one for the whole wait, and below it one for each stage."""
    root = tracer.start_span(
        "job wait", attributes=_attributes(trace), start_time=_nanoseconds(trace.queued_at)
    )
    context = set_span_in_context(root)
    for stage in trace.stages:
        span = tracer.start_span(stage.name, context, start_time=_nanoseconds(stage.began))
        span.end(_nanoseconds(stage.ended))
    root.end(_nanoseconds(trace.started_at))


def _attributes(trace: WaitTrace) -> Mapping[str, str | int]:
    """Return the attributes, named as OpenTelemetry's conventions for CI/CD name them where they do."""
    owner, _, repository = trace.repository.partition("/")
    known: dict[str, str | int | None] = {
        "cicd.pipeline.task.run.id": str(trace.job),
        "cicd.pipeline.run.id": str(trace.run) if trace.run is not None else None,
        "vcs.owner.name": owner,
        "vcs.repository.name": repository,
        "cicd.worker.id": trace.machine,
        "cicd.worker.name": trace.runner,
        "autoscaler.sku": trace.sku,
        "autoscaler.launch_request": trace.launch_request,
        "autoscaler.provider": trace.provider,
    }
    return {name: value for name, value in known.items() if value is not None}


def _nanoseconds(at: Instant) -> int:
    return round(at * 1e9)
