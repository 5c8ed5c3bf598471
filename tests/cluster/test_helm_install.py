"""Helm installs, upgrades and uninstalls the chart at the real API server."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.app.preflight import load_for_service
from autoscaler.providers.kubernetes.kind import KubernetesKind
from lab.kubernetes import namespaces
from lab.kubernetes.admin import Administrator
from lab.kubernetes.cluster import Cluster
from tests.cluster.conftest import until
from tests.cluster.rights import RELEASE
from tests.deploy.helm import CHART, helm
from tests.deploy.manifests import KUBERNETES

pytestmark = pytest.mark.asyncio(loop_scope="session")

RUNNERS = "second-fleet-runners"
VALUES: dict[str, Any] = {
    "fleet": "fleet: first\n",
    "machinesOutside": {"enabled": True},
    "webhooks": {"enabled": True, "host": "webhooks.example.com"},
    "runnerPods": {"enabled": True, "namespaces": [{"name": RUNNERS}], "capacity": True},
}
HERE = f"/api/v1/namespaces/{RELEASE}"
CONTROLLER = f"/apis/apps/v1/namespaces/{RELEASE}/statefulsets/{RELEASE}"
POD = f"{HERE}/pods/{RELEASE}-0"


@pytest.fixture(scope="module")
def access(cluster: Cluster) -> tuple[str, ...]:
    token = cluster.credentials.tokens["admin"]
    return ("--namespace", RELEASE, "--kubeconfig", str(cluster.kubeconfig("helm", token)))


async def may(admin: Administrator, verb: str, namespace: str, resource: str) -> bool:
    """Whether the controller's service account may do this."""
    group, _, name = resource.rpartition("/")
    user = f"system:serviceaccount:{RELEASE}:{RELEASE}"
    return await namespaces.may(admin, user, verb, namespace, group, name)


async def may_soon(admin: Administrator, verb: str, namespace: str, resource: str) -> None:
    """Wait until the API server's authorizer knows of the right."""

    async def known() -> bool:
        return await may(admin, verb, namespace, resource)

    await until(known)


def config_of(pod: dict[str, Any]) -> str:
    [volume] = [one for one in pod["spec"]["volumes"] if one["name"] == "fleet"]
    return str(volume["configMap"]["name"])


async def check_pods(cluster: Cluster, admin: Administrator, folder: Path) -> None:
    """Check the example online, as the controller of the release."""
    text = (KUBERNETES / "overlays" / "runner-pods" / "fleet.yaml").read_text()
    path = f"{HERE}/serviceaccounts/{RELEASE}/token"
    token = (await admin.create(path, {"spec": {"expirationSeconds": 600}}))["status"]["token"]
    kubeconfig = cluster.kubeconfig(RELEASE, token)
    text = text.replace(
        "{namespace: runners}", f"{{namespace: {RUNNERS}, kubeconfig: {kubeconfig}}}"
    )
    lines = [line for line in text.splitlines() if "ca_file" not in line]
    file = folder / "fleet.yaml"
    file.write_text("\n".join(lines))
    configuration = load_for_service(file, files=False)
    found = await KubernetesKind().check_online(configuration)
    assert found.problems == ()
    assert "cluster: the API server accepts the pods of 1 launch option" in found.lines


async def test_a_release_is_installed_upgraded_and_uninstalled(
    cluster: Cluster, admin: Administrator, access: tuple[str, ...], tmp_path: Path
) -> None:
    namespace = yaml.safe_load((KUBERNETES / "base" / "namespace.yaml").read_text())
    namespace["metadata"]["name"] = RELEASE
    await admin.create("/api/v1/namespaces", namespace)
    await admin.until(f"{HERE}/serviceaccounts/default", lambda _: True)

    helm("install", RELEASE, CHART, *access, values=VALUES)
    # The API server refuses pods of a StatefulSet that violate the namespace's Pod Security level.
    pod = await admin.until(POD, lambda _: True)
    await may_soon(admin, "create", RUNNERS, "pods")
    await may_soon(admin, "create", "", "authentication.k8s.io/tokenreviews")
    await may_soon(admin, "list", "", "nodes")
    assert not await may(admin, "create", RELEASE, "pods")
    assert not await may(admin, "get", RUNNERS, "secrets")
    assert not await may(admin, "get", RELEASE, "secrets")

    await check_pods(cluster, admin, tmp_path)

    helm("upgrade", RELEASE, CHART, *access, values=VALUES | {"fleet": "fleet: corrected\n"})
    # The first pod never was ready. It is replaced nevertheless (docs/adr/0017).
    second = await admin.until(
        POD, lambda found: found["metadata"]["uid"] != pod["metadata"]["uid"]
    )
    assert config_of(second) != config_of(pod)
    config = await admin.request("GET", f"{HERE}/configmaps/{config_of(second)}")
    assert config["data"] == {"fleet.yaml": "fleet: corrected\n"}

    helm("uninstall", RELEASE, *access)
    await admin.gone(CONTROLLER)
    assert await admin.request("GET", f"{HERE}/persistentvolumeclaims/{RELEASE}-store")
    assert await admin.request("GET", f"/api/v1/namespaces/{RUNNERS}")

    async def rights_removed() -> bool:
        return not await may(admin, "create", RUNNERS, "pods")

    await until(rights_removed)

    # What was kept belongs to the next release of the same name.
    helm("install", RELEASE, CHART, *access, values=VALUES)
    await may_soon(admin, "create", RUNNERS, "pods")
    helm("uninstall", RELEASE, *access)
