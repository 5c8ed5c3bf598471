"""Reads a machine's console output: the latest, or else that of its last state transition."""

from autoscaler.controller.ports.provider import MOST_CONSOLE, ProviderError
from autoscaler.model.identifiers import ProviderMachineId
from autoscaler.providers.ec2.errors import first_part
from autoscaler.providers.ec2.worker.channel import Api

_NOT_NOW = frozenset({"IncorrectInstanceState", "UnsupportedOperation"})
"""Errors for the latest output, which exists only for running machines of Nitro types (EC2 API
Reference, GetConsoleOutput). Other machines have the output of their last state transition."""


async def read_console(api: Api, machine: ProviderMachineId) -> str:
    """Return the end of the output, or an empty text. Raises ProviderError, OutcomeUnknownError."""
    arguments = {"id": machine, "most": MOST_CONSOLE}
    try:
        shown = await api.call("GetConsoleOutput", arguments | {"latest": True})
    except ProviderError as error:
        if first_part(error.code) not in _NOT_NOW:
            raise
        shown = ""
    if not shown:
        shown = await api.call("GetConsoleOutput", arguments | {"latest": False})
    return str(shown)
