"""What the notices of pods show after the API server has removed a pod."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from autoscaler.controller.ports.capabilities import Message, Notice
from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.providers.kubernetes.identity import ownership
from autoscaler.providers.kubernetes.listing.machines import identity
from autoscaler.providers.kubernetes.notices.queue import ObservedApi, PodNotices
from autoscaler.providers.kubernetes.notices.watch import Change
from tests.patience import PATIENCE
from tests.providers.doubles import ManualClock
from tests.providers.kubernetes_pods import make_pod, make_settings


def _gone() -> ProviderError:
    return ProviderError(FailureClass.UNKNOWN, "NotFound", "no such pod")


class RemovedPod:
    """An API server whose watch shows changes of a pod and is then silent. The pod is already removed.

    `kind` is that of each change. If the watch's version `expires`, the first watch ends, and the second one is
    answered with 410. Implements `ApiServer`.
    """

    def __init__(
        self, *shown: dict[str, Any], kind: str = "MODIFIED", expires: bool = False
    ) -> None:
        self._shown = shown
        self._kind = kind
        self._expires = expires
        self._watches = 0

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        if path.endswith("/pods"):
            return {"metadata": {"resourceVersion": "1"}, "items": []}
        raise _gone()

    async def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        raise _gone()

    @asynccontextmanager
    async def lines(
        self, path: str, query: Mapping[str, str], limit: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        yield self._lines()

    async def _lines(self) -> AsyncIterator[bytes]:
        self._watches += 1
        if self._watches == 1:
            for version, pod in enumerate(self._shown, 2):
                pod["metadata"]["resourceVersion"] = str(version)
                yield json.dumps({"type": self._kind, "object": pod}).encode()
            if self._expires:
                return
        elif self._watches == 2:
            yield json.dumps(
                {"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}
            ).encode()
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Do nothing: nothing is open."""


class Answering(RemovedPod):
    """An API server with one answer to all requests."""

    def __init__(self, found: dict[str, Any]) -> None:
        super().__init__()
        self._found = found

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        return self._found


@pytest.mark.case(
    "a watch shows that a lost node's pod failed, and falls silent before it shows the removal",
    topic="Kubernetes",
    source="Kubernetes: Nodes, and Pod garbage collection",
)
@pytest.mark.asyncio
async def test_an_end_that_the_watch_has_shown_is_known_after_the_removal() -> None:
    """Found by seed 193 of the worlds with clusters: the job was not reported as interrupted."""
    pod = make_pod({"phase": "Failed", "conditions": [condition("True", "DeletionByPodGC")]})
    notices = PodNotices(RemovedPod(pod), make_settings(), ManualClock())
    [notice] = await received(notices)
    [shown] = await notices.shown(notice.machines)
    await notices.close()
    assert (shown.terminated, shown.failure) == (True, FailureClass.CAPACITY)
    assert shown.scope is FailureScope.MACHINE


@pytest.mark.asyncio
async def test_a_removal_alone_shows_why_the_pod_was_deleted() -> None:
    """The last state of the pod is in the event of its removal."""
    status = {"phase": "Running", "conditions": [condition("True")]}
    removed = RemovedPod(make_pod(status, deleted=True), kind="DELETED")
    notices = PodNotices(removed, make_settings(), ManualClock())
    [notice] = await received(notices)
    [shown] = await notices.shown(notice.machines)
    await notices.close()
    assert (shown.terminated, shown.failure) == (True, FailureClass.CAPACITY)
    assert shown.reason.startswith("EvictionByEvictionAPI: why")


@pytest.mark.asyncio
async def test_a_removed_pod_has_been_confirmed_by_its_node() -> None:
    pod = make_pod({"phase": "Running"}, deleted=True)
    pod["spec"] |= {"nodeName": "gpu-7"}
    notices = PodNotices(RemovedPod(pod, kind="DELETED"), make_settings(), ManualClock())
    [notice] = await received(notices)
    [shown] = await notices.shown(notice.machines)
    await notices.close()
    assert (shown.terminated, shown.deleted) == (True, True)
    assert shown.reason == "Deleted: the pod was deleted"


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.asyncio
async def test_only_a_pod_that_was_deleted_before_its_end_was_killed_by_the_deletion(
    ended: bool,
) -> None:
    """A janitor may remove a pod whose job was killed at its memory limit: that job is not rerun."""
    notices = PodNotices(RemovedPod(), make_settings(), ManualClock())
    failed = make_pod({"phase": "Failed"})
    machine = identity(failed).machine
    if ended:
        assert notices._notice(Change(machine, failed)) is not None
    removed = make_pod({"phase": "Failed"}, deleted=True)
    assert notices._notice(Change(machine, None, removed)) is not None
    [shown] = await notices.shown([machine])
    assert shown.deleted is not ended


@pytest.mark.asyncio
async def test_the_answer_to_a_deletion_after_the_removal_says_nothing_new() -> None:
    """The next list would otherwise report the pod as removed once more."""
    pod = make_pod({"phase": "Failed"})
    notices = PodNotices(
        RemovedPod(pod, kind="DELETED", expires=True), make_settings(), ManualClock()
    )
    changes = notices._watch.changes()
    assert notices._notice(await anext(changes)) is not None
    await answer(notices, pod)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await anext(changes)
    assert notices._watch.lists == 2


@pytest.mark.asyncio
async def test_a_removal_without_a_reason_is_the_reason() -> None:
    removed = RemovedPod(make_pod({"phase": "Running"}), kind="DELETED")
    notices = PodNotices(removed, make_settings(), ManualClock())
    [notice] = await received(notices)
    [shown] = await notices.shown(notice.machines)
    await notices.close()
    assert (shown.terminated, shown.reason) == (True, "Removed: the pod was deleted")


@pytest.mark.case(
    "a watch breaks between an evicted pod's condition and its deletion",
    topic="Kubernetes",
    source="Kubernetes: Disruptions",
)
@pytest.mark.parametrize("phase", ["Running", "Pending"])
@pytest.mark.asyncio
async def test_a_pod_is_gone_as_its_condition_announced(phase: str) -> None:
    """Found by seed 172 of the worlds with clusters: the job was not reported as interrupted.

    A pod is Pending while its init container is ready for a job, and stays so if its node is lost after the
    assignment.
    """
    pod = make_pod({"phase": phase, "conditions": [condition("True")]})
    notices = PodNotices(RemovedPod(pod, expires=True), make_settings(), ManualClock())
    [notice] = await received(notices)
    await notices.close()
    assert notice.kind is NoticeKind.SCHEDULED_CHANGE
    assert notice.machines == (identity(pod).machine,)
    assert notice.detail == "EvictionByEvictionAPI: why"


@pytest.mark.case(
    "a pod is evicted while the watch is down: only the answer to the controller's deletion shows the eviction",
    topic="Kubernetes",
    source="Kubernetes: Disruptions",
)
@pytest.mark.asyncio
async def test_a_deleted_pod_is_gone_as_the_answer_to_its_deletion_showed() -> None:
    """Found by seed 11460 of the worlds with clusters: the job was not reported as interrupted."""
    status = {"phase": "Running", "conditions": [condition("True")]}
    deleted = make_pod({"phase": "Running"}, deleted=True)
    deleted["metadata"]["uid"] = "4b3f0a1e-0000-4000-8000-000000000002"
    evicted = make_pod(status, deleted=True)
    notices = PodNotices(RemovedPod(), make_settings(), ManualClock())
    for shown in (evicted, deleted, {"kind": "Status", "status": "Success"}):
        await answer(notices, shown)
    notice, other = await received(notices)
    await notices.close()
    assert notice.kind is NoticeKind.SCHEDULED_CHANGE
    assert notice.machines == (identity(evicted).machine,)
    assert notice.detail.startswith("EvictionByEvictionAPI: why")
    assert (other.kind, other.machines) == (NoticeKind.STATE_CHANGE, (identity(deleted).machine,))


@pytest.mark.case(
    "a pod is evicted and ends while the watch is down: only the answer to its deletion shows why it ended",
    topic="Kubernetes",
    source="Kubernetes: Disruptions",
)
@pytest.mark.asyncio
async def test_a_deleted_pod_has_ended_as_the_answer_to_its_deletion_showed() -> None:
    """Found by seed 301640 of the worlds with clusters: the job was not reported as interrupted."""
    evicted = make_pod({"phase": "Failed", "reason": "Evicted", "message": "The node was low"})
    notices = PodNotices(RemovedPod(), make_settings(), ManualClock())
    await answer(notices, evicted)
    [notice] = await received(notices)
    await notices.close()
    assert (notice.kind, notice.machines) == (NoticeKind.STATE_CHANGE, (identity(evicted).machine,))
    assert notice.ended is not None
    assert (notice.ended.terminated, notice.ended.failure) == (True, FailureClass.CAPACITY)
    assert notice.ended.reason == "Evicted: The node was low"


@pytest.mark.case(
    "a pod is evicted while the watch is down: only one page of a list that expires then shows it",
    topic="Kubernetes",
    source="Kubernetes: API Concepts",
)
@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.asyncio
async def test_a_pod_in_any_answer_is_seen(announced: bool) -> None:
    """As the answer to a read, to a change and to a deletion, and in a list, whatever it was for."""
    condition_ = condition("True")
    shown = make_pod({"phase": "Running", "conditions": [condition_]}, deleted=True)
    if announced:
        shown = make_pod({"phase": "Running", "conditions": [condition_]})
    page: dict[str, Any] = {"items": [shown], "metadata": {"continue": "x"}}
    for found in (shown, page):
        notices = PodNotices(RemovedPod(), make_settings(), ManualClock())
        await answer(notices, found)
        [notice] = await received(notices)
        await notices.close()
        assert notice.kind is NoticeKind.SCHEDULED_CHANGE
        assert notice.machines == (identity(shown).machine,)


@pytest.mark.asyncio
async def test_pods_of_other_fleets_and_namespaces_are_not_seen() -> None:
    notices = PodNotices(RemovedPod(make_pod({"phase": "Failed"})), make_settings(), ManualClock())
    foreign, elsewhere, started = (make_pod({"phase": "Failed"}) for _ in range(3))
    foreign["metadata"]["labels"] = {ownership.FLEET: "another"}
    elsewhere["metadata"]["namespace"] = "another"
    del started["status"]
    others: list[dict[str, Any]] = [foreign, elsewhere, started, {"items": []}, {"kind": "Status"}]
    for found in others:
        await answer(notices, found)
    assert not notices._removed
    await notices.close()


@pytest.mark.asyncio
async def test_an_older_answer_revokes_no_disruption() -> None:
    notices = PodNotices(RemovedPod(), make_settings(), ManualClock())
    await answer(notices, make_pod({"phase": "Running", "conditions": [condition("True")]}))
    await answer(notices, make_pod({"phase": "Running"}))
    [notice] = await received(notices)
    await notices.close()
    assert notice.kind is NoticeKind.SCHEDULED_CHANGE


@pytest.mark.asyncio
async def test_an_end_after_a_deletion_by_the_controller_is_reported_too() -> None:
    """Both are state changes. The second one need not be read."""
    leaving, gone = make_pod({"phase": "Running"}, deleted=True), make_pod({"phase": "Succeeded"})
    machine = identity(gone).machine
    notices = PodNotices(RemovedPod(), make_settings(), ManualClock())
    found = [notices._notice(Change(machine, pod)) for pod in (leaving, leaving, gone, gone)]
    assert [one is not None and one.ended is not None for one in found] == [
        False,
        False,
        True,
        False,
    ]
    assert [one is not None for one in found] == [True, False, True, False]


@pytest.mark.asyncio
async def test_a_condition_that_became_false_announces_nothing() -> None:
    """Kubernetes sets the condition to False if the deletion does not follow (documentation, "Disruptions")."""
    shown = [
        make_pod({"phase": "Running", "conditions": [condition(status)]})
        for status in ("True", "False")
    ]
    notices = PodNotices(RemovedPod(*shown, expires=True), make_settings(), ManualClock())
    [notice] = await received(notices)
    await notices.close()
    assert (notice.kind, notice.detail) == (NoticeKind.STATE_CHANGE, "does not exist")


@pytest.mark.asyncio
async def test_the_removal_of_a_pod_that_had_ended_is_not_reported_again() -> None:
    """A list shows only that it is gone. Its end alone has a reason."""
    pod = make_pod({"phase": "Failed", "reason": "Evicted"})
    machine = identity(pod).machine
    notices = PodNotices(RemovedPod(), make_settings(), ManualClock())
    ended = notices._notice(Change(machine, pod))
    assert ended is not None
    assert (ended.kind, ended.machines) == (NoticeKind.STATE_CHANGE, (machine,))
    assert notices._notice(Change(machine, None)) is None


async def answer(notices: PodNotices, found: dict[str, Any]) -> None:
    """The API server answers a request of any part of the provider."""

    await ObservedApi(Answering(found), make_settings(), notices._see).request("GET", "any")


def condition(status: str, reason: str = "EvictionByEvictionAPI") -> dict[str, str]:
    return {"type": "DisruptionTarget", "status": status, "reason": reason, "message": "why"}


async def messages(notices: PodNotices) -> tuple[Message, ...]:
    """The first messages."""
    async with asyncio.timeout(PATIENCE):
        while not (found := await notices.receive(1.0)):
            pass
    return found


async def received(notices: PodNotices) -> list[Notice]:
    """The first notices."""
    return [one.notice for one in await messages(notices) if one.notice is not None]
