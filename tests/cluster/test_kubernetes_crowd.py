"""1,500 pods at once; then some are evicted, and some lose their nodes."""

import asyncio
from collections import Counter

import pytest

from autoscaler.controller.ports.provider import OutcomeUnknownError
from autoscaler.model.failures import FailureClass
from autoscaler.providers.kubernetes.provider import LARGEST_REQUEST, KubernetesProvider
from tests.cluster.conftest import Place, until
from tests.providers.contract import listed

pytestmark = pytest.mark.asyncio(loop_scope="session")

PODS = 1500
GPUS = 100
EVICTED = 100
LOST = 2
"""Nodes that disappear, each with 100 pods."""

PAUSE = 4.0
"""Seconds between two lists of all pods, each of which costs half a second of CPU."""


async def test_many_pods_are_created_and_listed_and_none_is_left_over(
    place: Place, provider: KubernetesProvider
) -> None:
    nodes = [await place.add_node(GPUS) for _ in range(PODS // GPUS)]
    orders = [
        place.make_order(LARGEST_REQUEST, f"crowd-{number}")
        for number in range(PODS // LARGEST_REQUEST)
    ]
    requests = [await provider.prepare(order) for order in orders]
    answers = await asyncio.gather(*map(provider.launch, requests))
    launched = {one.provider_id for answer in answers for one in answer.launched}
    assert len(launched) == PODS
    assert all(answer.failures == () for answer in answers)

    async def all_listed() -> bool:
        try:
            found = set(await listed(provider))
        except OutcomeUnknownError:
            # The watch cache of a busy API server is behind its own continue token (504, "Too large resource
            # version"). The controller lists again, too.
            return False
        assert found == launched
        return True

    await until(all_listed, PAUSE)

    async def scheduled() -> bool:
        pods = (await place.pods()).values()
        return all(pod["status"].get("startTime") for pod in pods)

    await until(scheduled, PAUSE)
    on = {name: pod["spec"]["nodeName"] for name, pod in (await place.pods()).items()}
    lost = nodes[:LOST]
    evicted = [name for name, node in on.items() if node not in lost][:EVICTED]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction"}
    await asyncio.gather(
        *(
            place.admin.create(
                f"{place.path(name)}/eviction", eviction | {"metadata": {"name": name}}
            )
            for name in evicted
        )
    )
    for node in lost:
        await place.admin.request("DELETE", f"/api/v1/nodes/{node}")
    gone = {*evicted, *(name for name, node in on.items() if node in lost)}
    assert len(gone) == EVICTED + LOST * GPUS

    async def left() -> bool:
        found = await listed(provider)
        alive = {str(key).partition(".")[0] for key, one in found.items() if not one.terminated}
        return alive == set(on) - gone

    # The controller deletes the pods of a node that disappeared after about a minute.
    await until(left, PAUSE)
    ended = [one for one in (await listed(provider)).values() if one.terminated]
    assert Counter(one.failure for one in ended) in ({}, {FailureClass.CAPACITY: len(ended)})
    await provider.delete_unused([])
    assert await provider.terminate(sorted(launched)) == {}

    async def empty() -> bool:
        return not await listed(provider)

    await until(empty, PAUSE)
    for node in nodes[LOST:]:
        await place.admin.request("DELETE", f"/api/v1/nodes/{node}")
