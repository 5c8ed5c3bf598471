"""The API server admits every object of deploy/kubernetes, in a namespace that enforces `restricted`."""

import copy
from typing import Any

import pytest
import pytest_asyncio

from lab.kubernetes.admin import Administrator, RequestFailedError
from tests.deploy.kustomization import build
from tests.deploy.manifests import COMPONENTS, KUBERNETES, objects

pytestmark = pytest.mark.asyncio(loop_scope="session")

PLURALS = {"NetworkPolicy": "networkpolicies", "Ingress": "ingresses"}
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DRY_RUN = "?dryRun=All&fieldValidation=Strict"


def collection(body: dict[str, Any]) -> str:
    version, namespace = body["apiVersion"], body["metadata"].get("namespace")
    plural = PLURALS.get(body["kind"], body["kind"].lower() + "s")
    group = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{group}/namespaces/{namespace}/{plural}" if namespace else f"{group}/{plural}"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def admitted(admin: Administrator) -> list[dict[str, Any]]:
    """All objects but the namespaces, which exist, and the ServiceMonitor.

    The definition of ServiceMonitors belongs to the Prometheus Operator.
    """
    base = KUBERNETES / "base"
    found = [*objects(), *build(base, COMPONENTS / "runner-pods")]
    found += build(base, COMPONENTS / "postgresql")
    for name, body in {
        one["metadata"]["name"]: one for one in found if one["kind"] == "Namespace"
    }.items():
        await admin.create(collection(body), body)
        await admin.until(f"/api/v1/namespaces/{name}/serviceaccounts/default", lambda _: True)
    return [one for one in found if one["kind"] not in {"Namespace", "ServiceMonitor"}]


async def test_every_object_passes_a_dry_run(
    admin: Administrator, admitted: list[dict[str, Any]]
) -> None:
    for body in admitted:
        answer = await admin.create(collection(body) + DRY_RUN, body)
        assert answer["metadata"]["name"] == body["metadata"]["name"]


async def test_the_pod_of_the_controller_passes_pod_security(
    admin: Administrator, admitted: list[dict[str, Any]]
) -> None:
    """The API server only warns of a StatefulSet, and refuses its pods."""
    workload = next(one for one in admitted if one["kind"] == "StatefulSet")
    namespace = f"/api/v1/namespaces/{workload['metadata']['namespace']}"
    pod = copy.deepcopy(workload["spec"]["template"])
    pod["metadata"]["name"] = "controller"
    pod["spec"]["serviceAccountName"] = "default"
    await admin.create(f"{namespace}/pods{DRY_RUN}", pod)
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(RequestFailedError, match="violates PodSecurity"):
        await admin.create(f"{namespace}/pods{DRY_RUN}", pod)


async def test_the_api_server_refuses_a_field_that_does_not_exist(
    admin: Administrator, admitted: list[dict[str, Any]]
) -> None:
    body = copy.deepcopy(admitted[-1])
    body["misspelt"] = 1
    with pytest.raises(RequestFailedError, match="unknown field"):
        await admin.create(collection(body) + DRY_RUN, body)
