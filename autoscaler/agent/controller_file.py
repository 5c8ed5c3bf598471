"""The connection to the controller that the controller file names."""

from __future__ import annotations

from autoscaler.agent.actions import BadSettings
from autoscaler.agent.boot.bootstrap_client import Controller
from autoscaler.agent.boot.http_client import Link
from autoscaler.agent.clock import Clock
from autoscaler.agent.host import read_trusted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def connect(controller_file: str, proof: Callable[[], str], clock: Clock) -> Controller:
    """Return the client of the controller that this file names. Raises BadSettings."""
    values = read_trusted(controller_file)
    if values is None:
        raise BadSettings(f"{controller_file}: absent")
    url, provider, ca = values.get("controller"), values.get("provider"), values.get("ca")
    if not isinstance(url, str) or not isinstance(provider, str):
        raise BadSettings("controller file: controller and provider must be text")
    if ca is not None and not isinstance(ca, str):
        raise BadSettings("controller file: ca must be text or null")
    return Controller(Link(url, ca), provider, proof, clock)
