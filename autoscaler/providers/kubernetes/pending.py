"""Measures how long pods wait for a node, by the controller's clock.

The API server's clock may differ, so a pod's creation time says nothing. After a restart the wait begins anew:
downtime of the controller fails no pod.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from autoscaler.controller.ports.clock import Clock
from autoscaler.model.identifiers import Instant, ProviderMachineId, Seconds
from autoscaler.providers.kubernetes.answers import identity


class PendingPods:
    """The pods that have no node yet, and since when this controller knows them."""

    def __init__(self, clock: Clock, timeout: Seconds) -> None:
        self._clock, self._timeout = clock, timeout
        self._since: dict[ProviderMachineId, Instant] = {}

    def created(self, machines: Iterable[ProviderMachineId]) -> None:
        """Count the wait of these pods from now on, unless it is counted already."""
        now = self._clock.now()
        for machine in machines:
            self._since.setdefault(machine, now)

    def is_overdue(self, pod: Mapping[str, Any]) -> bool:
        """Return True if a pod has waited for a node for longer than the timeout."""
        machine = identity(pod).machine
        if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
            self._since.pop(machine, None)
            return False
        self.created((machine,))
        return self._clock.now() - self._since[machine] >= self._timeout

    def forget_others(self, machines: Collection[ProviderMachineId]) -> None:
        """Forget all pods but these, which a complete list has shown."""
        self._since = {one: since for one, since in self._since.items() if one in machines}
