"""Instructions to the rest of the agent, raised as exceptions."""

from __future__ import annotations


class TryAgain(Exception):  # noqa: N818 - an instruction, not an error
    """Try again later, after at least `retry_after` seconds if that is given."""

    def __init__(self, why: str, retry_after: float | None = None) -> None:
        super().__init__(why)
        self.retry_after = retry_after


class AttestAgain(Exception):  # noqa: N818
    """The controller refused a request: attest again before any other request."""


class PowerOff(Exception):  # noqa: N818
    """This machine has no work left and must power off."""


class Stopped(PowerOff):
    """The machine is being shut down, by its provider or by a person."""


class BadSettings(Exception):  # noqa: N818
    """The host file, the controller file or the image cannot be used."""
