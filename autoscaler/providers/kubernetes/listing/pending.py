"""Measures how long pods wait for a node, and for their start there, by the controller's clock.

The API server's clock may differ, so a pod's creation time says nothing. After a restart of the controller the
wait begins again, so that no pod fails because of the downtime.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from autoscaler.controller.ports.clock import Clock
from autoscaler.model.identifiers import Instant, ProviderMachineId, Seconds
from autoscaler.providers.kubernetes.listing.machines import identity
from autoscaler.providers.kubernetes.listing.statuses import pod_state

SET_UP_TIMEOUT: Seconds = 600.0
"""How long kubelet may fail to set up the pod or to pull an image.

It pulls again after 10, 20, 40, 80 and 160 seconds (Kubernetes documentation, "Images": ImagePullBackOff).
While it pulls again, the status still has the last failure (`pkg/kubelet/reason_cache.go`), and an image with
CUDA or ROCm takes minutes.
"""

START_TIMEOUT: Seconds = 120.0
"""How long kubelet may fail to create or to start a container. It tries again every 10 seconds (`backOffPeriod`
in `pkg/kubelet/kubelet.go`)."""


class PendingPods:
    """The pods that wait for a node, or for their start there, and since when this controller knows that."""

    def __init__(self, clock: Clock, timeout: Seconds) -> None:
        """`timeout` is how long a pod may wait for a node."""
        self._clock, self._timeout = clock, timeout
        self._for_node: dict[ProviderMachineId, Instant] = {}
        self._for_start: dict[ProviderMachineId, tuple[Seconds, Instant]] = {}

    def created(self, machines: Iterable[ProviderMachineId]) -> None:
        """Count the wait of these pods for a node from now on, unless it is counted already."""
        now = self._clock.now()
        for machine in machines:
            self._for_node.setdefault(machine, now)

    def is_overdue(self, pod: Mapping[str, Any]) -> bool:
        """Return True if a pod has waited for a node, or for its start there, for longer than the timeout."""
        machine, now = identity(pod).machine, self._clock.now()
        leaving = pod["metadata"].get("deletionTimestamp") is not None
        if leaving or pod["spec"].get("nodeName"):
            self._for_node.pop(machine, None)
        else:
            self.created((machine,))
            return now - self._for_node[machine] >= self._timeout
        state = pod_state(pod)
        if leaving or not state.retrying:
            self._for_start.pop(machine, None)
            return False
        allowed = START_TIMEOUT if state.creating else SET_UP_TIMEOUT
        if self._for_start.get(machine, (0.0, now))[0] != allowed:
            self._for_start[machine] = allowed, now
        return now - self._for_start[machine][1] >= allowed

    def keep_only(self, machines: Collection[ProviderMachineId]) -> None:
        """Drop all pods but these, which a complete list has shown."""
        self._for_node = {one: at for one, at in self._for_node.items() if one in machines}
        self._for_start = {one: at for one, at in self._for_start.items() if one in machines}
