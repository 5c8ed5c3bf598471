"""A large cluster takes neither the controller's memory nor its event loop."""

import asyncio
import weakref
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from autoscaler.providers.kubernetes.listing.pods import PAGE, list_pods
from autoscaler.providers.kubernetes.notices.watch import PodWatch
from tests.providers.kubernetes_pods import make_pod, make_settings
from tests.providers.test_kubernetes_capacity import KEY, node
from tests.providers.test_kubernetes_requests import RecordingApi, make_provider


class Weighed(dict[str, Any]):
    """An object of an answer that can be counted while it is kept."""


class LargeCluster(RecordingApi):
    """An `ApiServer` with many pods. It answers at once, and never lets other tasks run."""

    def __init__(self, pods: int, nodes: tuple[Mapping[str, Any], ...] = ()) -> None:
        super().__init__([])
        self._pods, self._nodes = pods, nodes
        self._kept: weakref.WeakValueDictionary[int, Weighed] = weakref.WeakValueDictionary()
        self.most_kept = 0

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        self.asked.append((method, path, query, body))
        if path.endswith("/nodes"):
            return {"metadata": {"resourceVersion": "1"}, "items": list(self._nodes)}
        assert query is not None
        first = int(query.get("continue", "0"))
        after = min(first + int(query["limit"]), self._pods)
        items = [self._pod(number) for number in range(first, after)]
        self.most_kept = max(self.most_kept, len(self._kept))
        following = {"continue": str(after)} if after < self._pods else {}
        return {"metadata": {"resourceVersion": "1", **following}, "items": items}

    def _pod(self, number: int) -> Weighed:
        pod = Weighed(make_pod({"phase": "Running"}))
        pod["metadata"] |= {"uid": f"uid-{number}", "managedFields": [{"manager": "kubelet"}]}
        pod["spec"]["nodeName"] = "a"
        self._kept[number] = pod
        return pod


async def turns_of_others(stopped: asyncio.Event) -> int:
    """How often another task runs before this event is set."""
    turns = 0
    while not stopped.is_set():
        turns += 1
        await asyncio.sleep(0)
    return turns


async def test_the_pods_of_a_cluster_are_counted_without_keeping_them() -> None:
    """Each takes some 40 KB: 30,000 of them are more than the memory limit of the controller."""
    cluster = LargeCluster(20 * PAGE, (node("a", str(50 * PAGE)),))
    provider = make_provider(cluster, replace(make_settings(), provisioner=False))
    # The fleet's own pods, which the ledger subtracts.
    assert await provider.quotas() == {KEY: 50 * PAGE}
    assert len(cluster.asked) == 1 + 20
    assert cluster.most_kept <= 2 * PAGE


async def test_what_only_other_clients_read_of_a_pod_is_not_kept() -> None:
    found = await list_pods(LargeCluster(3), make_settings())
    assert [
        ("managedFields" in pod["metadata"], "uid" in pod["metadata"]) for pod in found.pods
    ] == [(False, True)] * 3


async def test_a_list_of_thousands_of_pods_lets_other_tasks_run() -> None:
    provider, stopped = make_provider(LargeCluster(20 * PAGE)), asyncio.Event()
    others = asyncio.create_task(turns_of_others(stopped))
    pages = [len(page) async for page in provider.machines()]
    stopped.set()
    assert pages == [PAGE] * 20
    assert await others >= 20


async def test_the_first_list_of_a_watch_lets_other_tasks_run() -> None:
    watch, stopped = PodWatch(LargeCluster(20 * PAGE), make_settings()), asyncio.Event()
    others = asyncio.create_task(turns_of_others(stopped))
    async with aclosing(watch.changes()) as changes:
        for _ in range(20 * PAGE):
            await anext(changes)
    stopped.set()
    assert await others >= 19
