"""Converts pods into the model's types: launched and listed machines, offerings, notices. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autoscaler.controller.ports.capabilities import Notice
from autoscaler.model.catalogue import CapacityType, Offering
from autoscaler.model.events import LaunchedMachine, ListedMachine
from autoscaler.model.identifiers import (
    Instant,
    LaunchRequestId,
    ProviderName,
    SkuName,
)
from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.providers.kubernetes.api.texts import one_line
from autoscaler.providers.kubernetes.identity import ownership
from autoscaler.providers.kubernetes.identity.ownership import PodIdentity, metadata_of
from autoscaler.providers.kubernetes.listing.ends import Finding, disrupted_at
from autoscaler.providers.kubernetes.listing.statuses import UNSCHEDULABLE, PodState, pod_state
from autoscaler.providers.kubernetes.settings import PODS, RUNNER, KubernetesSettings, PodOption
from autoscaler.providers.kubernetes.values.quantities import devices, units

_NEVER_TRUSTED_PRICE = 1e6
"""Dollars an hour: an annotation cannot say more."""

_REMOVED = "Removed: the pod was deleted"


def offering(settings: KubernetesSettings, option: PodOption) -> Offering:
    """Return the only offering of a launch option: its shape, in the provider's namespace."""
    return Offering(
        provider=settings.name,
        instance_type=option.shape,
        zone=settings.namespace,
        capacity_type=CapacityType.ON_DEMAND,
        dollars_per_hour=option.dollars_per_hour,
        quota=option.quota,
        quota_units=option.accelerator.count if option.accelerator is not None else 1,
    )


def identity(pod: Mapping[str, Any]) -> PodIdentity:
    """Return the name and UID of a pod from the API server."""
    return PodIdentity(pod["metadata"]["name"], pod["metadata"]["uid"])


def launched_machine(pod: Mapping[str, Any]) -> LaunchedMachine:
    """Return a created pod as a machine."""
    return LaunchedMachine(
        provider_id=identity(pod).machine,
        instance_type=metadata_of(pod, "annotations").get(ownership.SHAPE, ""),
        zone=pod["metadata"]["namespace"],
        capacity_type=CapacityType.ON_DEMAND,
        image=str(_runner(pod).get("image", "")),
        launch_time=pod["metadata"]["creationTimestamp"],
    )


def listed_machine(
    settings: KubernetesSettings, pod: Mapping[str, Any], *, overdue: bool = False
) -> ListedMachine:
    """Return a listed pod as a machine. `overdue`: it has waited too long for a node, an image or a container.

    The controller deletes a pod that cannot start, and then tries another launch option.
    """
    labels, annotations = metadata_of(pod, "labels"), metadata_of(pod, "annotations")
    found, launched = pod_state(pod), launched_machine(pod)
    overdue = overdue and not found.terminated
    cannot_start = overdue or _cannot_start(settings, found)
    finding = _waited(settings, found) if overdue else found.finding
    ends = finding is not None and (found.terminated or found.leaving or cannot_start)
    return ListedMachine(
        provider_id=launched.provider_id,
        installation=labels.get(ownership.INSTALLATION, ""),
        launch_request=LaunchRequestId(labels.get(ownership.LAUNCH_REQUEST, "")),
        sku=SkuName(annotations.get(ownership.SKU, "")),
        terminated=found.terminated,
        instance_type=launched.instance_type,
        zone=launched.zone,
        capacity_type=launched.capacity_type,
        dollars_per_hour=_price(annotations.get(ownership.PRICE, "")),
        quota_usage=() if found.terminated else quota_usage(settings.name, pod),
        image=launched.image,
        launch_time=launched.launch_time,
        reason=_words(pod, found, finding),
        failure=finding.failure if finding is not None and ends else None,
        scope=finding.scope if finding is not None and ends else None,
        leaving=found.leaving,
        deleted=found.deleted,
        cannot_start=cannot_start,
        not_admitted=found.not_admitted,
        assigned=ownership.ASSIGNED in annotations,
        state=found.state,
        host=one_line((pod.get("spec") or {}).get("nodeName")),
        error=finding.code if finding is not None else "",
    )


def removed_machine(settings: KubernetesSettings, pod: Mapping[str, Any]) -> ListedMachine:
    """Return a pod that has ended or was removed, from the last that the API server showed of it."""
    found = pod_state(pod)
    return replace(
        listed_machine(settings, pod),
        terminated=True,
        leaving=False,
        deleted=found.deleted or not found.terminated,
        cannot_start=False,
        quota_usage=(),
        reason=found.finding.text if found.finding is not None else _REMOVED,
    )


def _words(pod: Mapping[str, Any], found: PodState, finding: Finding | None) -> str:
    """Return why a pod ended, leaves or waits. Only its node's kubelet can end it: a lost node leaves it."""
    text = finding.text if finding is not None else ""
    node = one_line((pod.get("spec") or {}).get("nodeName"))
    return f"{text}; node {node} has not confirmed its end yet" if found.leaving and node else text


def _waited(settings: KubernetesSettings, found: PodState) -> Finding:
    """Return what a pod waited too long for, with the reason if there is one."""
    if found.retrying and found.finding is not None:
        return found.finding
    text = f"no node within {settings.pending_timeout:g} s"
    if found.finding is None:
        return Finding(UNSCHEDULABLE, text, FailureClass.CAPACITY)
    message = f"{text}: {found.finding.message}" if found.finding.message else text
    return Finding(found.finding.code, message, FailureClass.CAPACITY)


def _cannot_start(settings: KubernetesSettings, found: PodState) -> bool:
    """Return True if a pod stays pending until an operator changes something."""
    return found.refused or (found.unschedulable and not settings.provisioner)


def pod_notice(settings: KubernetesSettings, pod: Mapping[str, Any], now: Instant) -> Notice | None:
    """Return the notice that a pod's status gives, or None if it runs or waits."""
    state = pod_state(pod)
    if not (state.terminated or state.leaving or _cannot_start(settings, state)):
        return None
    kind = _interruption(state.finding) if state.leaving else NoticeKind.STATE_CHANGE
    return _notice(kind, pod, state, now)


def disruption_notice(pod: Mapping[str, Any], now: Instant) -> Notice | None:
    """Return the notice that holds once a pod with the condition DisruptionTarget is gone, or None without it.

    The cluster's controllers write the condition first and then delete the pod. If the pod is not deleted, they
    set the condition to False (Kubernetes documentation, "Disruptions").
    """
    state = pod_state(pod)
    return _notice(_interruption(state.finding), pod, state, now) if state.disrupted else None


def _interruption(finding: Finding | None) -> NoticeKind:
    """An eviction or the loss of a node is a change of one host: other nodes may have room."""
    if finding is None or finding.failure is not FailureClass.CAPACITY:
        return NoticeKind.STATE_CHANGE
    alone = finding.scope in (FailureScope.MACHINE, FailureScope.HOST)
    return NoticeKind.SCHEDULED_CHANGE if alone else NoticeKind.SPOT_INTERRUPTION


def _notice(kind: NoticeKind, pod: Mapping[str, Any], state: PodState, now: Instant) -> Notice:
    detail = _words(pod, state, state.finding) or state.state
    at = disrupted_at(pod)
    # A job that died with the pod may fail before the notice is read. The cluster's clock may be fast.
    means_at = now if at is None else min(at, now)
    return Notice(kind, (identity(pod).machine,), means_at, detail)


def quota_usage(provider: ProviderName, pod: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Return what a pod counts against, as (`Offering.quota_key`, units)."""
    annotations = metadata_of(pod, "annotations")
    quota = annotations.get(ownership.QUOTA) or PODS
    used = devices(_runner(pod)).get(quota.partition("{")[0], 0)
    of_job = units(annotations.get(ownership.QUOTA_UNITS))
    return ((f"{provider}/{quota}", max(used, of_job, 1)),)


def _runner(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    for container in pod.get("spec", {}).get("containers") or ():
        if container.get("name") == RUNNER:
            found: Mapping[str, Any] = container
            return found
    return {}


def _price(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        return 0.0
    return found if 0 <= found <= _NEVER_TRUSTED_PRICE else 0.0
