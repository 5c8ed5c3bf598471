"""Unverified machines: the reasons for this state, and the machines as an operator sees them."""

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.identifiers import (
    Instant,
    MachineId,
    ProviderMachineId,
    ProviderName,
    SkuName,
)


class UnverifiedReason(StrEnum):
    """Why no record proves whether a job runs on a machine. `explanation` has each in a sentence."""

    UNKNOWN_LAUNCH_REQUEST = "unknown_launch_request"
    PRUNED_SLOT = "pruned_slot"
    ADOPTED_INSTALLATION = "adopted_installation"
    LISTED_AGAIN = "listed_again"
    STORE_IS_OLDER = "store_is_older"
    NO_RUNNER_LIST_YET = "no_runner_list_yet"
    NO_MACHINE_LIST_YET = "no_machine_list_yet"
    LISTED_AT_GITHUB = "listed_at_github"

    @property
    def explanation(self) -> str:
        """Return the reason as text for operators."""
        return _EXPLANATIONS[self]

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


_EXPLANATIONS = {
    UnverifiedReason.UNKNOWN_LAUNCH_REQUEST: "its launch request is not in the store",
    UnverifiedReason.PRUNED_SLOT: "the controller has already deleted its record from memory",
    UnverifiedReason.ADOPTED_INSTALLATION: "it belongs to an adopted installation",
    UnverifiedReason.LISTED_AGAIN: "two listings did not show it, and a later one did",
    UnverifiedReason.STORE_IS_OLDER: (
        "the store is a restored backup: the machine may have been assigned after the backup"
    ),
    UnverifiedReason.NO_RUNNER_LIST_YET: (
        "silent since the controller started, and GitHub has not listed its runners since"
    ),
    UnverifiedReason.NO_MACHINE_LIST_YET: (
        "silent since the controller started, and its provider has not listed its machines since"
    ),
    UnverifiedReason.LISTED_AT_GITHUB: "GitHub lists a runner of it that is not in the store",
}


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
