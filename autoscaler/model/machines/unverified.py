"""Unverified machines: the reasons for this state, and the machines as an operator sees them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from autoscaler.model.identifiers import (
    Instant,
    MachineId,
    ProviderMachineId,
    ProviderName,
    SkuName,
)


class UnverifiedReason(StrEnum):
    """Why no record proves whether a job runs on a machine. `explanation` has each in a sentence."""

    explanation: str

    def __new__(cls, value: str, explanation: str = "") -> Self:
        """Return the member of a reason, with its text for operators."""
        member = str.__new__(cls, value)
        member._value_, member.explanation = value, explanation
        return member

    UNKNOWN_LAUNCH_REQUEST = "unknown_launch_request", "its launch request is not in the store"
    PRUNED_SLOT = "pruned_slot", "the controller has already deleted its record from memory"
    ADOPTED_INSTALLATION = "adopted_installation", "it belongs to an adopted installation"
    LISTED_AGAIN = "listed_again", "two listings did not show it, and a later one did"
    STORE_IS_OLDER = (
        "store_is_older",
        "the store is a restored backup: the machine may have been assigned after the backup",
    )
    NO_RUNNER_LIST_YET = (
        "no_runner_list_yet",
        "silent since the controller started, and GitHub has not listed its runners since",
    )
    NO_MACHINE_LIST_YET = (
        "no_machine_list_yet",
        "silent since the controller started, and its provider has not listed its machines since",
    )
    LISTED_AT_GITHUB = "listed_at_github", "GitHub lists a runner of it that is not in the store"

    @property
    def is_cleared_by_poll(self) -> bool:
        """Return True if the machine is ready again once its agent polls for an assignment.

        A poll does not clear the other reasons. Without a record of the machine there is no nonce to
        poll with. GitHub's listing is evidence of a job, and a job on the machine can poll like the agent.
        """
        return self in (
            UnverifiedReason.STORE_IS_OLDER,
            UnverifiedReason.NO_RUNNER_LIST_YET,
            UnverifiedReason.NO_MACHINE_LIST_YET,
        )


@dataclass(frozen=True, slots=True)
class UnverifiedMachine:
    """One machine that counts against the limits and that the controller does not terminate.

    `machine` is None for a machine of another installation. `since` is when the machine became
    unverified, if this is known. `why` and `what_to_do` are sentences.
    """

    machine: MachineId | None
    provider: ProviderName
    provider_id: ProviderMachineId | None
    installation: str
    sku: SkuName
    since: Instant | None
    launched: str
    why: str
    what_to_do: str
