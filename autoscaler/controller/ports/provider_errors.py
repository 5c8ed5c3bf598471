"""The errors of a provider of machines, split by what to do next."""

from autoscaler.controller.ports.unlisted_errors import raises_only
from autoscaler.model.identifiers import Seconds
from autoscaler.model.machines.failures import FailureClass, FailureScope


class ProviderError(Exception):
    """The provider refused, or could not be asked. `failure` says what to do next.

    `retry_after` (seconds) is set if the provider gave one, `scope` if the failure concerns more than its
    class says, `offering` (a key) if the provider named the refused one, and `hint` if an operator can mend it.
    """

    def __init__(
        self,
        failure: FailureClass,
        code: str,
        message: str,
        retry_after: Seconds | None = None,
        scope: FailureScope | None = None,
        offering: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.failure = failure
        self.code = code
        self.message = message
        self.retry_after = retry_after
        self.scope = scope
        self.offering = offering
        self.hint = hint


class OutcomeUnknownError(Exception):
    """The request may have been carried out: a time-out, a connection that broke, a 5xx.

    `retry_after` (seconds) is set if the provider gave one.
    """

    hint: str | None = None

    def __init__(self, message: str = "", retry_after: Seconds | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ProofRefusedError(Exception):
    """A machine's proof of identity is invalid. `reason` is a fixed, short word.

    One of: malformed, signature, certificate, account, region, expired.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


provider_errors = raises_only(
    (ProviderError, OutcomeUnknownError, ProofRefusedError),
    OutcomeUnknownError,
    # Preparing launches nothing, and a proof may itself have caused the error.
    prepare=lambda text: ProviderError(FailureClass.UNKNOWN, "Unlisted", text),
    verify=lambda text: ProofRefusedError("malformed", text),
)
"""Decorates the classes of a provider: an error that the port does not list is an unknown outcome."""
