"""Credentials of a pod's service account and of a kubeconfig, and their rotation, at the real API server."""

import base64
import json
import os
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.kubernetes.api.client import KubernetesApi
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from autoscaler.providers.kubernetes.settings import KubernetesSettings
from lab.kubernetes.credentials import Credentials
from tests.cluster.conftest import Place, until
from tests.providers.doubles import ManualClock, RememberingTelemetry

pytestmark = pytest.mark.asyncio(loop_scope="session")

ACCOUNT = "gpu-runner-autoscaler"


@pytest.fixture
def folder(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files and the variables that kubelet gives to a pod's containers."""
    host, port = place.cluster.url.removeprefix("https://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    (tmp_path / "ca.crt").write_bytes(place.cluster.credentials.ca.read_bytes())
    (tmp_path / "token").write_text(place.token)
    return tmp_path


@pytest_asyncio.fixture(loop_scope="session")
async def in_cluster(place: Place, folder: Path) -> AsyncIterator[KubernetesProvider]:
    settings = replace(place.settings, context=None, kubeconfig=None, service_account_folder=folder)
    made = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    yield made
    await made.close()


async def token_until_deleted(place: Place, secret: str) -> str:
    """A token of the controller's service account that is valid while this Secret exists."""
    secrets = f"/api/v1/namespaces/{place.name}/secrets"
    made = await place.admin.create(secrets, {"metadata": {"name": secret}})
    bound = {"kind": "Secret", "apiVersion": "v1", "name": secret, "uid": made["metadata"]["uid"]}
    path = f"/api/v1/namespaces/{place.name}/serviceaccounts/{ACCOUNT}/token"
    spec = {"expirationSeconds": 600, "boundObjectRef": bound}
    return str((await place.admin.create(path, {"spec": spec}))["status"]["token"])


def credential(token: str) -> str:
    """The ID of a token as the audit log has it."""
    part = token.split(".")[1]
    return f"JTI={json.loads(base64.urlsafe_b64decode(part + '=='))['jti']}"


def credentials_used(place: Place) -> set[str]:
    """The IDs of the tokens of all requests of the controller that the API server answered with success."""
    return {
        identifier
        for event in place.cluster.audit_events()
        if event["user"].get("username") == place.user and event["responseStatus"]["code"] == 200
        for identifier in event["user"]["extra"]["authentication.kubernetes.io/credential-id"]
    }


async def only_used(place: Place, token: str) -> None:
    """Wait until the audit log shows requests of the controller, all of which had this token."""

    async def logged() -> bool:
        return bool(credentials_used(place))

    await until(logged)
    assert credentials_used(place) == {credential(token)}


async def test_in_a_cluster_the_controller_is_the_service_account_of_its_pod(
    place: Place, in_cluster: KubernetesProvider
) -> None:
    await in_cluster.open()
    answer = await in_cluster.launch(await in_cluster.prepare(place.make_order(1, "inside")))
    assert len(answer.launched) == 1
    await only_used(place, place.token)


@pytest.mark.case(
    "kubelet replaces a pod's token, and the API server then refuses the old one",
    topic="Kubernetes",
    source="Kubernetes: service accounts",
)
async def test_a_token_that_kubelet_replaced_is_used_without_a_restart(
    place: Place, folder: Path, in_cluster: KubernetesProvider
) -> None:
    first = await token_until_deleted(place, "first")
    (folder / "token").write_text(first)
    await in_cluster.open()
    await only_used(place, first)
    (folder / "token").write_text(place.token)
    await place.admin.request("DELETE", f"/api/v1/namespaces/{place.name}/secrets/first")

    async def used_the_second() -> bool:
        # The API server remembers a valid token for seconds. No request fails meanwhile.
        await in_cluster.open()
        return credential(place.token) in credentials_used(place)

    await until(used_the_second, pause=0.5)


async def test_a_new_certificate_authority_is_read_without_a_restart(
    folder: Path, tmp_path: Path, in_cluster: KubernetesProvider
) -> None:
    authority = (folder / "ca.crt").read_bytes()
    other = tmp_path / "other"
    other.mkdir()
    (folder / "ca.crt").write_bytes(Credentials(other).ca.read_bytes())
    with pytest.raises(ProviderError) as error:
        await in_cluster.open()
    assert (error.value.failure, error.value.code) == (FailureClass.CONFIGURATION, "Certificate")
    (folder / "ca.crt").write_bytes(authority)
    await in_cluster.open()


@pytest.mark.parametrize("file", ["token", "ca.crt"])
async def test_a_missing_file_of_the_pod_is_an_error_until_it_is_there(
    folder: Path, in_cluster: KubernetesProvider, file: str
) -> None:
    content = (folder / file).read_bytes()
    (folder / file).unlink()
    with pytest.raises(ProviderError) as error:
        await in_cluster.open()
    assert (error.value.failure, error.value.code) == (FailureClass.CONFIGURATION, "NotInCluster")
    assert error.value.message.endswith(f"this host lacks the file {folder / file}")
    (folder / file).write_bytes(content)
    await in_cluster.open()


def with_user(place: Place, path: Path, user: dict[str, Any]) -> KubernetesSettings:
    """The settings with a kubeconfig whose context has this user."""
    content = json.loads(place.cluster.kubeconfig(place.name, "").read_text())
    content["users"][0]["user"] = user
    path.write_text(json.dumps(content))
    return replace(place.settings, context=place.name, kubeconfig=path)


async def test_a_token_file_of_a_kubeconfig_is_read_again_after_a_401(
    place: Place, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("an expired token")
    settings = with_user(place, tmp_path / "config", {"tokenFile": str(file)})
    provider = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    with pytest.raises(ProviderError, match="Unauthorized"):
        await provider.open()
    file.write_text(place.token)
    await provider.open()
    await provider.close()


def plugin(path: Path, answers: Path) -> dict[str, Any]:
    """A credential plugin, such as `aws eks get-token`, that prints the file `answers`."""
    path.write_text(f'#!/bin/sh\necho $$ >> "{path}.pids"\nexec cat "{answers}"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path)}}


def answer_of_plugin(token: str) -> str:
    body = {"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1"}
    return json.dumps(body | {"status": {"token": token}})


async def test_a_credential_plugin_is_asked_again_after_a_401(place: Place, tmp_path: Path) -> None:
    answers = tmp_path / "answers"
    answers.write_text(answer_of_plugin("an expired token"))
    settings = with_user(place, tmp_path / "config", plugin(tmp_path / "plugin", answers))
    provider = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    with pytest.raises(ProviderError, match="Unauthorized"):
        await provider.open()
    answers.write_text(answer_of_plugin(place.token))
    await provider.open()
    await provider.close()


@pytest.mark.case(
    "a credential plugin fails: the official client would send anonymous requests",
    topic="Kubernetes",
    source="Kubernetes: credential plugins",
)
async def test_a_failing_credential_plugin_sends_no_anonymous_request(
    place: Place, tmp_path: Path
) -> None:
    settings = with_user(place, tmp_path / "config", plugin(tmp_path / "plugin", tmp_path / "none"))
    provider = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    with pytest.raises(ProviderError, match="plugin failed, or answered without a token") as error:
        await provider.open()
    assert (error.value.failure, error.value.code) == (FailureClass.CONFIGURATION, "Kubeconfig")
    await provider.close()


async def test_a_credential_plugin_that_never_ends_stops_no_later_request(
    place: Place, tmp_path: Path
) -> None:
    pipe = tmp_path / "answers"
    os.mkfifo(pipe)
    settings = with_user(place, tmp_path / "config", plugin(tmp_path / "plugin", pipe))
    api = KubernetesApi(replace(settings, timeout=0.05), RememberingTelemetry(), ManualClock())
    pids = tmp_path / "plugin.pids"

    async def started_twice() -> bool:
        with pytest.raises(ProviderError, match="no credentials within"):
            await api.request("GET", f"/api/v1/namespaces/{place.name}/pods")
        return pids.exists() and len(pids.read_text().splitlines()) >= 2

    # On a busy host, a request can end before its plugin has started.
    await until(started_twice)
    await api.close()
    # All plugins end: those that read the pipe with its last writer, and later ones without a pipe.
    writer = os.open(pipe, os.O_RDWR)
    pipe.unlink()
    os.close(writer)


async def test_refused_credentials_leave_few_connections(place: Place, tmp_path: Path) -> None:
    """With a plugin whose token is valid for 15 minutes, each renewal would leave a client."""
    settings = with_user(place, tmp_path / "config", {"token": "an expired token"})
    api = KubernetesApi(settings, RememberingTelemetry(), ManualClock())
    provider = KubernetesProvider(settings, RememberingTelemetry(), ManualClock(), api)
    for _ in range(6):
        with pytest.raises(ProviderError, match="Unauthorized"):
            await provider.open()
    assert len(api._retired) == 2
    await provider.close()
