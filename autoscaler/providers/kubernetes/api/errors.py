"""The meaning of the API server's errors. A pure table.

Sources: Kubernetes API reference, `Status`; apimachinery's `pkg/apis/meta/v1/types.go` (reasons); the
admission plugins `resourcequota` ("exceeded quota: ...") and `podsecurity` ("violates PodSecurity ...");
apiserver's `pkg/admission/plugin/namespace/lifecycle` ("not yet ready ..."), `pkg/util/webhook/error.go`,
`pkg/admission/plugin/webhook/errors/statuserror.go` and `pkg/admission/plugin/policy/validating/dispatcher.go`.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.providers.kubernetes.api.texts import one_line

EXCEEDED_QUOTA = "ExceededQuota"
FORBIDDEN = "Forbidden"
"""A 403 of the authorizer, or of an admission plugin that has no code of its own here."""
NOT_READY = "NotReady"
"""A 403 of an API server that has not read its roles, or other objects that decide, since its start."""
POD_SECURITY = "PodSecurity"
UNREACHABLE = "Unreachable"
WEBHOOK_FAILED = "WebhookFailed"
ADMISSION_DENIED = "AdmissionDenied"
OTHER_NAME = "CertificateName"
"""The API server's certificate is for other names than the one in the kubeconfig."""
_OTHER = "other"

_CLASSES: Mapping[str, FailureClass] = MappingProxyType(
    {
        EXCEEDED_QUOTA: FailureClass.QUOTA,
        POD_SECURITY: FailureClass.CONFIGURATION,
        ADMISSION_DENIED: FailureClass.CONFIGURATION,
        # Most webhooks come back without an operator, for example after their pod was moved.
        WEBHOOK_FAILED: FailureClass.UNKNOWN,
        "BadRequest": FailureClass.CONFIGURATION,
        "Unauthorized": FailureClass.CONFIGURATION,
        FORBIDDEN: FailureClass.CONFIGURATION,
        NOT_READY: FailureClass.THROTTLED,
        "NotFound": FailureClass.CONFIGURATION,
        "Invalid": FailureClass.CONFIGURATION,
        "AlreadyExists": FailureClass.CONFIGURATION,
        "MethodNotAllowed": FailureClass.CONFIGURATION,
        "NotAcceptable": FailureClass.CONFIGURATION,
        "RequestEntityTooLarge": FailureClass.CONFIGURATION,
        "UnsupportedMediaType": FailureClass.CONFIGURATION,
        # Another request changed the namespace's quota at the same time: admission gave up after its retries.
        "Conflict": FailureClass.THROTTLED,
        "TooManyRequests": FailureClass.THROTTLED,
        "Expired": FailureClass.UNKNOWN,
        "Gone": FailureClass.UNKNOWN,
        UNREACHABLE: FailureClass.UNKNOWN,
    }
)

CODES = frozenset({*_CLASSES, "InternalError", "ServiceUnavailable", "ServerTimeout", "Timeout"})
"""The codes that may be labels of metrics."""

_REASONS = MappingProxyType(
    {
        400: "BadRequest",
        401: "Unauthorized",
        403: FORBIDDEN,
        404: "NotFound",
        405: "MethodNotAllowed",
        406: "NotAcceptable",
        409: "Conflict",
        410: "Gone",
        413: "RequestEntityTooLarge",
        415: "UnsupportedMediaType",
        422: "Invalid",
        429: "TooManyRequests",
    }
)
HINTS: Mapping[str, str] = MappingProxyType(
    {
        "Kubeconfig": "correct the kubeconfig, or the file that the message names",
        "NotInCluster": "outside a cluster, add context or kubeconfig to the provider; in a pod, write "
        "automountServiceAccountToken: true",
        "Unauthorized": "renew the credentials of the kubeconfig's context",
        FORBIDDEN: "grant the rights in deploy/kubernetes/ to the controller's user or service account, or "
        "change what the admission plugin named in the message rejects",
        "NotFound": "create the namespace, or correct it",
        POD_SECURITY: "remove what the namespace's Pod Security level forbids, or change the level",
        WEBHOOK_FAILED: "repair the admission webhook that the message names, or its configuration (kubectl "
        "get validatingwebhookconfigurations,mutatingwebhookconfigurations)",
        ADMISSION_DENIED: "correct the pod, or the admission policy that the message names",
        "Certificate": "correct the certificate authority of the kubeconfig's cluster",
        OTHER_NAME: "in the kubeconfig, write a name of this certificate as tls-server-name, or correct server",
    }
)
"""What an operator can do, by the error's code."""

MAX_RETRY_AFTER = 3600.0
"""Seconds: a proxy with an error cannot stop a provider for longer. The API server itself says 1 to 32."""

_LIMITED = re.compile(r"limited: (.*)")
_WHOLE_PROVIDER = frozenset({"pods", "count/pods"})

_NOT_READY = "not yet ready to handle request"
"""An admission plugin's own objects were not read within ten seconds."""

_ANONYMOUS = 'User "system:anonymous"'
"""The API server believed no credentials of the request (apiserver, `pkg/authentication/user`: `Anonymous`)."""

_WEBHOOK_FAILED = re.compile('failed calling webhook "')
_DENIED = re.compile(
    'admission webhook "[^"]*" denied the request|ValidatingAdmissionPolicy .* denied request'
)


def refusal(
    failure: FailureClass,
    code: str,
    message: str,
    retry_after: float | None = None,
    scope: FailureScope | None = None,
) -> ProviderError:
    """Return the error of this code, with what an operator can do."""
    return ProviderError(failure, code, message, retry_after, scope, hint=HINTS.get(code))


def error_of(
    status: int, body: Mapping[str, Any], retry_after: float | None = None
) -> ProviderError | OutcomeUnknownError:
    """Return the error for an answer of the API server with this HTTP status and `Status` object.

    `retry_after` is the header of this name, in seconds. Errors 500, 503 and 504 may have one, too
    (apimachinery, `pkg/api/errors`: `NewServerTimeout`, `NewTimeoutError`). They leave the outcome open, except
    if an admission webhook failed or denied the request.
    """
    message = one_line(body.get("message"))
    reason = str(body.get("reason") or _REASONS.get(status) or f"HTTP {status}")
    wait = retry_after if retry_after is not None else _seconds(body)
    wait = min(wait, MAX_RETRY_AFTER) if wait is not None else None
    code, scope = _meaning(status, reason, message)
    if status >= 500 and code not in (WEBHOOK_FAILED, ADMISSION_DENIED):
        return OutcomeUnknownError(f"{reason}: {message}" if message else reason, wait)
    failure = _CLASSES.get(code, FailureClass.UNKNOWN)
    return refusal(failure, code, message, wait, scope)


def _meaning(status: int, reason: str, message: str) -> tuple[str, FailureScope | None]:
    if status == 403 and "exceeded quota:" in message:
        found = _LIMITED.search(message)
        limited = {one.partition("=")[0] for one in found[1].split(",")} if found else set()
        return EXCEEDED_QUOTA, FailureScope.PROVIDER if limited & _WHOLE_PROVIDER else None
    if status == 403 and _ANONYMOUS in message:
        return "Unauthorized", None
    if status == 403 and "violates PodSecurity" in message:
        return POD_SECURITY, None
    if status == 403 and _NOT_READY in message:
        return NOT_READY, None
    # Admission comes before anything is stored, so these requests had no effect, also with status 500.
    if status == 500 and _WEBHOOK_FAILED.search(message):
        return WEBHOOK_FAILED, None
    if status != 429 and _DENIED.search(message):
        return ADMISSION_DENIED, None
    return reason, None


def _seconds(body: Mapping[str, Any]) -> float | None:
    details = body.get("details")
    found = details.get("retryAfterSeconds") if isinstance(details, Mapping) else None
    return float(found) if isinstance(found, int | float) and found > 0 else None


def metric_label(code: str) -> str:
    """Return the code, or `other`, so that the set of label values stays bounded."""
    return code if code in CODES else _OTHER
