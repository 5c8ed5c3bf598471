"""Changes what the API server admits, and waits for its plugins: they read caches, which follow later."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from lab.kubernetes.admin import RequestFailedError
from tests.cluster.conftest import Place, until

ENFORCE = "pod-security.kubernetes.io/enforce"
_PROBE = "tests.example/probe"


def probe(**spec: Any) -> dict[str, Any]:
    """A pod that passes Pod Security `restricted`."""
    container = {
        "name": "probe",
        "image": "probe",
        "resources": {"limits": {"cpu": "1", _PROBE: "1"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "metadata": {"name": "probe"},
        "spec": {"containers": [container], "securityContext": security, **spec},
    }


async def refusal(place: Place, pod: dict[str, Any]) -> str:
    """Why the API server refuses a pod now; empty if it does not."""
    try:
        await place.admin.create(f"/api/v1/namespaces/{place.name}/pods?dryRun=All", pod)
    except RequestFailedError as error:
        return str(error)
    return ""


async def enforce(place: Place, level: str) -> None:
    """Have the namespace enforce a Pod Security level."""
    namespace = f"/api/v1/namespaces/{place.name}"
    await place.admin.patch(namespace, {"metadata": {"labels": {ENFORCE: level}}})
    pod = probe()
    pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}

    async def in_force() -> bool:
        why = await refusal(place, pod)
        return f'violates PodSecurity \\"{level}:' in why if why else level == "privileged"

    await until(in_force)


async def set_quota(place: Place, hard: dict[str, str]) -> None:
    """Have a ResourceQuota, in place of an earlier one.

    The plugin asks the API server itself if its cache has no quota of a namespace, and remembers the answer for
    30 s (`GetQuotas` in k8s.io/apiserver's plugin/resourcequota/resource_access.go). The pod asked for at first
    makes it remember that there is none, so a refusal afterwards comes from the cache. A quota whose use the
    controllers have not counted yet refuses nothing.
    """

    async def none() -> bool:
        return await refusal(place, probe()) == ""

    async def in_force() -> bool:
        return "exceeded quota: quota" in await refusal(place, probe())

    quotas = f"/api/v1/namespaces/{place.name}/resourcequotas"
    for old in (await place.admin.request("GET", quotas))["items"]:
        await place.admin.request("DELETE", f"{quotas}/{old['metadata']['name']}")
    await until(none)
    spec = {"hard": hard | {f"requests.{_PROBE}": "0"}}
    await place.admin.create(quotas, {"metadata": {"name": "quota"}, "spec": spec})
    await until(in_force)


async def add_priority_class(place: Place, name: str, value: int) -> None:
    """Add a PriorityClass."""
    group = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await place.admin.create(group, {"metadata": {"name": name}, "value": value})

    async def in_force() -> bool:
        return await refusal(place, probe(priorityClassName=name)) == ""

    await until(in_force)


@asynccontextmanager
async def failing_webhook(place: Place, *also: str) -> AsyncIterator[str]:
    """Have the API server ask a webhook that does not answer before it creates a pod here. Yield its name.

    `also`: further operations, such as `UPDATE`.
    """
    name = f"pods.{place.name}.example"
    selector = {"matchLabels": {"kubernetes.io/metadata.name": place.name}}
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE", *also],
        "resources": ["pods"],
    }
    webhook = {
        "name": name,
        "rules": [rule],
        "namespaceSelector": selector,
        # The port of TCP's multiplexer: nothing listens there.
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    await place.admin.create(kind, {"metadata": {"name": place.name}, "webhooks": [webhook]})

    async def in_force() -> bool:
        return "failed calling webhook" in await refusal(place, probe())

    async def gone() -> bool:
        return await refusal(place, probe()) == ""

    await until(in_force)
    yield name
    await place.admin.request("DELETE", f"{kind}/{place.name}")
    await until(gone)
