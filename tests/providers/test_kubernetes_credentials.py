"""Errors in the credentials of a kubeconfig, as `check --online` and `serve` report them."""

import asyncio
import gc
import json
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from autoscaler.app.preflight import load_for_service
from autoscaler.config.provider_kind import OnlineCheck
from autoscaler.controller.ports.provider import ProviderError
from autoscaler.providers.kubernetes.api.client import KubernetesApi
from autoscaler.providers.kubernetes.api.credentials import new_client
from autoscaler.providers.kubernetes.api.errors import HINTS
from autoscaler.providers.kubernetes.kind import KubernetesKind
from autoscaler.providers.kubernetes.settings import KubernetesSettings
from tests.config.fleet_file import Folder, pods
from tests.config.keys import certificate, curve_key, pem
from tests.providers.doubles import ManualClock, RememberingTelemetry
from tests.providers.kubernetes_pods import make_settings

API_VERSION = "client.authentication.k8s.io/v1"


def write(file: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None) -> Path:
    content = {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster or {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": user}],
    }
    file.write_text(json.dumps(content))
    return file


async def online(file: Path) -> OnlineCheck:
    found = load_for_service(file)
    return await KubernetesKind().check_online(found)


@pytest.mark.parametrize("section", ["provisioner: true", "provisioner: false"])
async def test_one_check_runs_a_failing_credential_plugin_once(
    tmp_path: Path, section: str
) -> None:
    folder = Folder(tmp_path)
    runs, plugin = tmp_path / "runs", tmp_path / "plugin"
    plugin.write_text(f'#!/bin/sh\necho run >> "{runs}"\nexit 1\n')
    plugin.chmod(0o700)
    write(tmp_path / "k", {"exec": {"apiVersion": API_VERSION, "command": str(plugin)}})
    file = folder.path / "fleet.yaml"
    named = f"{{kubeconfig: k, namespace: n, {section}}}"
    file.write_text(pods(("{context: c, namespace: runners}", named)))
    [problem] = (await online(file)).problems
    assert f"credential plugin {plugin} failed" in problem.what
    assert runs.read_text().splitlines() == ["run"]


@pytest.mark.parametrize(
    ("variable", "context", "said"),
    [
        ("absent", "one", "no kubeconfig was found in {}/absent: write the key kubeconfig"),
        ("absent:gone", "one", "no kubeconfig was found in {0}/absent or {0}/gone: "),
        (
            "absent:k",
            "two",
            '"two" is not a context of KUBECONFIG, without {}/absent, which does not',
        ),
        ("k", "two", '"two" is not a context of {}/k: write one'),
        ("folder", "one", "{}/folder cannot be read: Is a directory: name a file to read"),
        ("k:folder", "one", "{}/folder cannot be read: Is a directory: name a file to read"),
    ],
)
async def test_the_files_of_the_variable_kubeconfig_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, context: str, said: str
) -> None:
    write(tmp_path / "k", {"token": "t"})
    (tmp_path / "folder").mkdir()
    files = [str(tmp_path / name) for name in variable.split(":")]
    monkeypatch.setenv("KUBECONFIG", ":".join(files))
    with pytest.raises(ProviderError) as error:
        await new_client(make_settings(context=context))
    assert error.value.code == "Kubeconfig"
    assert error.value.message.startswith(said.format(tmp_path))


async def test_an_absent_file_of_the_variable_kubeconfig_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "k", {"token": "t"})
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'absent'}:{file}")
    client = await new_client(make_settings(context="one"))
    assert client.configuration.api_key == {"BearerToken": "Bearer t"}
    await client.close()


async def test_a_client_certificate_without_a_key_is_an_error_in_credentials(
    tmp_path: Path,
) -> None:
    (tmp_path / "client.pem").write_text(certificate(curve_key()))
    file = write(tmp_path / "k", {"client-certificate": "client.pem"})
    with pytest.raises(ProviderError) as error:
        await new_client(make_settings(kubeconfig=file))
    assert error.value.code == "Kubeconfig"


@pytest_asyncio.fixture
async def secure(tmp_path: Path) -> AsyncIterator[KubernetesSettings]:
    """An API server with a certificate for k.example, under the address 127.0.0.1."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({})

    (tmp_path / "ca.pem").write_text(certificate(curve_key(), "k.example"))
    (tmp_path / "key.pem").write_text(pem(curve_key()))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "ca.pem", tmp_path / "key.pem")
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    running = TestServer(app, host="127.0.0.1", scheme="https")
    await running.start_server(ssl=context)
    cluster = {"server": str(running.make_url("")).rstrip("/"), "certificate-authority": "ca.pem"}
    write(tmp_path / "k", {"token": "t"}, cluster)
    yield make_settings(kubeconfig=tmp_path / "k")
    await running.close()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"tls-server-name": "other.example"}, "CertificateName"),
        ({}, "CertificateName"),
        ({"tls-server-name": "k.example", "certificate-authority": "other.pem"}, "Certificate"),
    ],
)
async def test_a_certificate_for_another_name_is_no_wrong_authority(
    secure: KubernetesSettings, tmp_path: Path, changes: dict[str, str], code: str
) -> None:
    (tmp_path / "other.pem").write_text(certificate(curve_key("other"), "k.example"))
    api = KubernetesApi(secure, RememberingTelemetry(), ManualClock())
    change_cluster(tmp_path / "k", {"tls-server-name": "k.example"})
    assert await api.request("GET", "/version") == {}
    await api.close()
    change_cluster(tmp_path / "k", {"tls-server-name": ""} | changes)
    with pytest.raises(ProviderError) as error:
        await api.request("GET", "/version")
    await api.close()
    assert error.value.code == code
    assert ("tls-server-name" in HINTS[code]) == (code == "CertificateName")


def change_cluster(file: Path, changes: dict[str, str]) -> None:
    content = json.loads(file.read_text())
    content["clusters"][0]["cluster"] |= changes
    file.write_text(json.dumps(content))


def test_a_watch_leaves_no_connection_to_an_api_server_that_does_not_close_it(
    tmp_path: Path,
) -> None:
    """Python warns of such a connection when the event loop has ended, and a warning fails a test."""
    (tmp_path / "ca.pem").write_text(certificate(curve_key(), "k.example"))
    (tmp_path / "key.pem").write_text(pem(curve_key()))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "ca.pem", tmp_path / "key.pem")
    ended = threading.Event()

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with context.wrap_socket(connection, server_side=True) as secured:
            secured.recv(65_536)
            secured.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n")
            ended.wait()

    async def watch(settings: KubernetesSettings) -> None:
        api = KubernetesApi(settings, RememberingTelemetry(), ManualClock())
        async with api.lines("/pods", {}, 30.0) as lines:
            assert await anext(lines) == b"{}\n"
        await api.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=serve, args=[listening])
        server.start()
        address = f"https://127.0.0.1:{listening.getsockname()[1]}"
        cluster = {"server": address, "certificate-authority": "ca.pem"}
        write(tmp_path / "k", {"token": "t"}, cluster | {"tls-server-name": "k.example"})
        try:
            asyncio.run(watch(make_settings(kubeconfig=tmp_path / "k")))
            gc.collect()
        finally:
            ended.set()
            server.join()
