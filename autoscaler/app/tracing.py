"""Opens the export of traces, if the environment names an endpoint for them."""

import os
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoscaler.observability.traces import OtlpTraces

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""OpenTelemetry's variables (its specification, "OpenTelemetry Protocol Exporter")."""


def open_traces(fleet: str) -> "OtlpTraces | None":
    """Return the export of traces, or None without an endpoint. The SDK is imported only if there is one."""
    if not any(os.environ.get(name) for name in ENDPOINTS):
        return None
    from autoscaler.observability.traces import OtlpTraces

    traces = OtlpTraces(fleet, version("gpu-runner-autoscaler"))
    traces.start()
    return traces
