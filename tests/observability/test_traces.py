"""Traces over OTLP/HTTP to a real receiver: one for each job, with a span for each stage of its wait."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from structlog.testing import capture_logs

from autoscaler.app.running import TRACES_TO, open_traces
from autoscaler.controller.ports.telemetry import Stage, TraceTelemetry, WaitTrace
from autoscaler.model.identifiers import (
    JobId,
    LaunchRequestId,
    MachineId,
    ProviderName,
    RunnerName,
    SkuName,
)
from autoscaler.observability.traces import OtlpTraces
from tests.patience import PATIENCE

QUEUED_AT = 1_700_000_000.0
TRACE = WaitTrace(
    job=JobId(7),
    run=3,
    repository="acme/widgets",
    sku=SkuName("gpu"),
    queued_at=QUEUED_AT,
    started_at=QUEUED_AT + 60.5,
    stages=(
        Stage("launch", QUEUED_AT, QUEUED_AT + 2.0),
        Stage("boot", QUEUED_AT + 2.0, QUEUED_AT + 60.5),
    ),
    runner=RunnerName("ci-0badcafe-c0-1"),
    machine=MachineId("c0"),
    launch_request=LaunchRequestId("c"),
    provider=ProviderName("east"),
)


class Receiver:
    """An OTLP/HTTP receiver on loopback. While `open` is not set, it answers nothing."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.paths: list[str] = []
        self.open = threading.Event()
        self.open.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.open.wait(PATIENCE)
                receiver.paths.append(self.path)
                receiver.requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self.open.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def spans(self) -> list[Any]:
        """Return all spans, in the order of their ends."""
        found = [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(found, key=lambda span: (span.end_time_unix_nano, span.name == "job wait"))


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    found = Receiver()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield found
    found.stop()


def opened() -> OtlpTraces:
    found = open_traces("ci")
    assert found is not None
    return found


def values(attributes: Any) -> dict[str, str]:
    return {one.key: one.value.string_value for one in attributes}


def test_a_job_is_one_trace_with_a_span_for_each_stage(receiver: Receiver) -> None:
    traces = opened()
    port: TraceTelemetry = traces
    port.trace_job(TRACE)
    traces.close()
    launch, boot, root = receiver.spans()
    assert receiver.paths == ["/v1/traces"]
    assert [one.name for one in (launch, boot, root)] == ["launch", "boot", "job wait"]
    assert len({one.trace_id for one in (launch, boot, root)}) == 1
    assert {launch.parent_span_id, boot.parent_span_id} == {root.span_id}
    assert root.parent_span_id == b""
    assert (root.start_time_unix_nano, root.end_time_unix_nano) == (
        1_700_000_000_000_000_000,
        1_700_000_060_500_000_000,
    )
    assert boot.start_time_unix_nano == launch.end_time_unix_nano == 1_700_000_002_000_000_000
    assert values(root.attributes) == {
        "cicd.pipeline.task.run.id": "7",
        "cicd.pipeline.run.id": "3",
        "vcs.owner.name": "acme",
        "vcs.repository.name": "widgets",
        "cicd.worker.id": "c0",
        "cicd.worker.name": "ci-0badcafe-c0-1",
        "autoscaler.sku": "gpu",
        "autoscaler.launch_request": "c",
        "autoscaler.provider": "east",
    }
    resource = values(receiver.requests[0].resource_spans[0].resource.attributes)
    assert (resource["service.name"], resource["service.namespace"]) == (
        "gpu-runner-autoscaler",
        "ci",
    )


def test_two_jobs_have_two_traces(receiver: Receiver) -> None:
    traces = opened()
    traces.trace_job(TRACE)
    traces.trace_job(TRACE)
    traces.close()
    assert len({span.trace_id for span in receiver.spans()}) == 2


def test_a_receiver_that_does_not_answer_delays_no_caller(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All traces are taken while it is silent. What does not fit into the queues is dropped."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "16")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "16")
    receiver.open.clear()
    traces = OtlpTraces("ci", "1", queued=8)
    traces.start()
    for _ in range(5_000):
        traces.trace_job(TRACE)
    assert receiver.requests == []
    receiver.open.set()
    traces.close()
    assert 0 < len(receiver.spans()) < 5_000 * 3


def test_dropped_traces_are_counted_in_the_log(receiver: Receiver) -> None:
    traces = OtlpTraces("ci", "1", queued=2)
    for _ in range(5):
        traces.trace_job(TRACE)
    with capture_logs() as lines:
        traces.start()
        traces.close()
    assert [(line["event"], line["count"]) for line in lines] == [("traces_dropped", 3)]
    assert len(receiver.spans()) == 2 * 3


def test_the_environment_names_the_service(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    traces = opened()
    traces.trace_job(TRACE)
    traces.close()
    resource = values(receiver.requests[0].resource_spans[0].resource.attributes)
    assert (resource["service.name"], resource["deployment.environment.name"]) == ("mine", "test")


@pytest.mark.parametrize("name", TRACES_TO)
def test_without_an_endpoint_there_are_no_traces(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in TRACES_TO:
        monkeypatch.delenv(one, raising=False)
    assert open_traces("ci") is None
    monkeypatch.setenv(name, "")
    assert open_traces("ci") is None
