"""The classes of the API server's errors."""

import pytest

from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.events import LaunchFailure
from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.providers.kubernetes.api.errors import (
    CODES,
    HINTS,
    MAX_RETRY_AFTER,
    error_of,
    metric_label,
)
from tests.ledger.builders import World

QUOTA = (
    'pods "x" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, '
    "used: requests.nvidia.com/gpu=8, limited: requests.nvidia.com/gpu=8"
)
PODS = (
    'pods "x" is forbidden: exceeded quota: all, requested: pods=1, used: pods=9, limited: pods=9'
)
SECURITY = 'pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true (pod or ...)'

ANONYMOUS = 'pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group ""'


def refusal(status: int, reason: str = "", message: str = "", **more: object) -> ProviderError:
    error = error_of(status, {"reason": reason, "message": message, **more})
    assert isinstance(error, ProviderError)
    return error


def test_a_quota_of_the_accelerators_concerns_what_uses_it() -> None:
    error = refusal(403, "Forbidden", QUOTA)
    assert (error.failure, error.code, error.scope) == (FailureClass.QUOTA, "ExceededQuota", None)
    assert "used: requests.nvidia.com/gpu=8" in error.message


def test_a_quota_of_pods_concerns_the_whole_provider() -> None:
    error = refusal(403, "Forbidden", PODS)
    assert (error.failure, error.scope) == (FailureClass.QUOTA, FailureScope.PROVIDER)


@pytest.mark.parametrize(
    ("status", "reason", "message", "code"),
    [
        (403, "Forbidden", SECURITY, "PodSecurity"),
        (403, "Forbidden", "User cannot create resource", "Forbidden"),
        (403, "Forbidden", ANONYMOUS, "Unauthorized"),
        (401, "Unauthorized", "", "Unauthorized"),
        (401, "", "", "Unauthorized"),
        (404, "NotFound", 'namespaces "runners" not found', "NotFound"),
        (422, "Invalid", "spec.containers: Required value", "Invalid"),
        (400, "BadRequest", "strict decoding error: unknown field", "BadRequest"),
    ],
)
def test_what_an_operator_must_fix_is_a_configuration_error(
    status: int, reason: str, message: str, code: str
) -> None:
    error = refusal(status, reason, message)
    assert (error.failure, error.code) == (FailureClass.CONFIGURATION, code)


WEBHOOK = (
    'Internal error occurred: failed calling webhook "validate.kyverno.svc-fail": failed to call webhook: '
    'Post "https://kyverno-svc.kyverno.svc:443/validate/fail?timeout=10s": context deadline exceeded'
)


@pytest.mark.case(
    "an admission webhook does not answer: the API server answers 500, and has created no pod",
    topic="Kubernetes",
    source="Kubernetes: Dynamic Admission Control",
)
def test_a_failing_webhook_is_a_failure_with_its_name_and_no_unknown_outcome() -> None:
    error = refusal(500, "InternalError", WEBHOOK)
    assert (error.failure, error.code, error.scope) == (FailureClass.UNKNOWN, "WebhookFailed", None)
    assert '"validate.kyverno.svc-fail"' in error.message
    assert "webhook that the message names" in HINTS[error.code]
    world = World()
    world.queue(1)
    world.send(1)
    said = LaunchFailure(error.failure, error.code, error.message)
    world.answer("c", failures=(said,))
    [waits] = [run.message for runs in world.plan().waiting.values() for run in runs]
    assert (
        'on hold: WebhookFailed: Internal error occurred: failed calling webhook "validate' in waits
    )
    # A gateway in front of the API server may say what it likes.
    assert isinstance(error_of(502, {"message": WEBHOOK}), OutcomeUnknownError)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (403, 'admission webhook "validate.kyverno.svc-fail" denied the request: team is missing'),
        (400, 'admission webhook "a.example" denied the request without explanation'),
        (500, 'admission webhook "a.example" denied the request: team is missing'),
        (
            422,
            "pods \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no team",
        ),
    ],
)
def test_a_denied_admission_is_no_lack_of_rights(status: int, message: str) -> None:
    error = refusal(status, "Forbidden", message)
    assert (error.failure, error.code) == (FailureClass.CONFIGURATION, "AdmissionDenied")
    assert "rights" not in HINTS[error.code]


def test_a_webhook_that_throttles_is_a_throttle() -> None:
    said = 'admission webhook "a.example" denied the request: too many pods'
    assert refusal(429, "TooManyRequests", said).failure is FailureClass.THROTTLED


def test_an_api_server_that_has_not_read_its_objects_yet_is_no_lack_of_rights() -> None:
    error = refusal(403, "Forbidden", 'pods "x" is forbidden: not yet ready to handle request')
    assert (error.failure, error.code) == (FailureClass.THROTTLED, "NotReady")


def test_throttling_has_the_time_of_the_next_try() -> None:
    error = error_of(429, {"reason": "TooManyRequests"}, retry_after=7.0)
    assert isinstance(error, ProviderError)
    assert (error.failure, error.retry_after) == (FailureClass.THROTTLED, 7.0)
    assert refusal(429, "TooManyRequests", details={"retryAfterSeconds": 3}).retry_after == 3.0
    assert refusal(429, "TooManyRequests", details={"retryAfterSeconds": 1}).retry_after == 1.0
    assert (
        refusal(429, "TooManyRequests", details={"retryAfterSeconds": "soon"}).retry_after is None
    )


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_failure_of_the_server_leaves_the_outcome_open(status: int) -> None:
    error = error_of(status, {"message": "etcd"})
    assert isinstance(error, OutcomeUnknownError)
    assert error.retry_after is None


@pytest.mark.case(
    "`Retry-After` with a 503, or in the body of a 500 or 504",
    topic="Kubernetes",
    source="apimachinery errors.go",
)
@pytest.mark.parametrize("status", [429, 500, 503, 504])
def test_every_error_may_say_when_to_come_back(status: int) -> None:
    details = {"retryAfterSeconds": 3}
    assert error_of(status, {"details": details}).retry_after == 3.0
    assert error_of(status, {"details": details}, retry_after=7.0).retry_after == 7.0


@pytest.mark.parametrize("status", [429, 503])
def test_no_error_stops_a_provider_for_days(status: int) -> None:
    assert error_of(status, {}, retry_after=float("9" * 400)).retry_after == MAX_RETRY_AFTER
    body = {"details": {"retryAfterSeconds": 10**9}}
    assert error_of(status, body).retry_after == MAX_RETRY_AFTER


def test_messages_are_one_line_of_bounded_length() -> None:
    error = refusal(422, "Invalid", "a\nb" + "x" * 5000)
    assert error.message.startswith("a b")
    assert len(error.message) <= 500


def test_labels_of_metrics_are_bounded() -> None:
    assert metric_label("ExceededQuota") == "ExceededQuota"
    assert metric_label("whatever a server says") == "other"
    assert len(CODES) < 30
