"""Terminates machines in batches.

EC2 refuses a whole request because of one bad id. This module removes that id, and repeats the request
for the other machines.
"""

import re
from collections.abc import Iterator, Sequence

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.identifiers import ProviderMachineId
from autoscaler.providers.ec2.worker.channel import Api

BATCH = 500
"""Machines per request, as in Karpenter; EC2 allows up to 1,000."""

_ID = re.compile(r"\bi-[0-9a-f]+\b")
_NOT_FOUND = "InvalidInstanceID.NotFound"
_REFUSED = frozenset(
    {"IncorrectInstanceState", "InvalidInstanceID.Malformed", "OperationNotPermitted"}
)


async def terminate_machines(
    api: Api, machines: Sequence[ProviderMachineId]
) -> dict[ProviderMachineId, str]:
    """Request the termination of these machines; return the refused ones with EC2's reason.

    Machines that EC2 does not know count as terminated. Raises OutcomeUnknownError, and ProviderError
    if EC2 refuses the request without naming a machine.
    """
    refused: dict[ProviderMachineId, str] = {}
    for batch in _batches(list(dict.fromkeys(machines))):
        await _terminate_batch(api, batch, refused)
    return refused


async def _terminate_batch(
    api: Api, batch: list[ProviderMachineId], refused: dict[ProviderMachineId, str]
) -> None:
    # Each request has fewer machines than the one before, so the loop ends.
    while batch:
        try:
            await api.call("TerminateInstances", {"ids": batch})
        except ProviderError as error:
            named = set(_ID.findall(error.message)) | _quoted(error.message, batch)
            bad = [one for one in batch if one in named]
            if not bad or (error.code != _NOT_FOUND and error.code not in _REFUSED):
                raise
            if error.code in _REFUSED:
                refused.update(dict.fromkeys(bad, f"{error.code}: {error.message}"))
            batch = [one for one in batch if one not in named]
        else:
            return


def _quoted(message: str, batch: Sequence[ProviderMachineId]) -> set[str]:
    # A malformed id does not match `_ID`, but EC2 quotes it.
    return {one for one in batch if f'"{one}"' in message or f"'{one}'" in message}


def _batches(machines: list[ProviderMachineId]) -> Iterator[list[ProviderMachineId]]:
    for start in range(0, len(machines), BATCH):
        yield machines[start : start + BATCH]
