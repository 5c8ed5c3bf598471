"""The controller serves the example's fleet.yaml as in its pod: files, probes, certificate, read-only root."""

import asyncio
import re
import ssl
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
import pytest_asyncio

from tests.deploy.manifests import ROOT, container, container_ports, fleet, mounts, only
from tests.deploy.pod_files import free_ports, write_certificate, write_fleet, write_secrets
from tests.patience import PATIENCE

pytestmark = [pytest.mark.systems, pytest.mark.asyncio(loop_scope="module")]

AUTOSCALER = Path(sys.executable).parent / "autoscaler"
CHANGES = "open,openat,creat,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,link,symlink"
WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TMPFILE")


@dataclass
class Pod:
    """A controller with the files, arguments and environment of its pod, in a folder instead of `/`."""

    root: Path
    ports: dict[str, int]
    process: asyncio.subprocess.Process
    environment: dict[str, str]

    def path(self, there: Path | str) -> Path:
        return self.root / str(there).lstrip("/")

    @property
    def arguments(self) -> list[str]:
        *command, file = container()["args"]
        return [*command, str(self.path(file))]

    @property
    def trust(self) -> ssl.SSLContext:
        """As strict as Python 3.13, whose default this is."""
        context = ssl.create_default_context(
            cafile=str(self.path(fleet()["server"]["tls"]["ca_file"]))
        )
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    async def get(self, path: str, name: str = "localhost", **headers: str) -> tuple[int, Any]:
        """The answer of the bootstrap port to a client that expects this name in its certificate."""
        url = f"https://localhost:{self.ports['bootstrap']}{path}"
        async with aiohttp.ClientSession() as session:
            request = session.get(url, headers=headers, ssl=self.trust, server_hostname=name)
            async with request as answer:
                as_json = answer.content_type == "application/json"
                return answer.status, await (answer.json() if as_json else answer.text())

    async def run(self, *arguments: str) -> tuple[int, str]:
        """Run another command in the pod; its exit status and its output."""
        other = await asyncio.create_subprocess_exec(
            AUTOSCALER,
            *arguments,
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await asyncio.wait_for(other.communicate(), PATIENCE)
        return other.returncode or 0, output.decode()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pod(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pod]:
    root = tmp_path_factory.mktemp("root")
    *chosen, closed = free_ports(3)
    ports = dict(zip(("bootstrap", "webhook"), chosen, strict=True))
    write_secrets(root)
    await write_certificate(root)
    write_fleet(root, ports, closed)
    for name in ("store", "tmp"):
        (root / str(mounts()[name]).lstrip("/")).mkdir(parents=True)
    environment = {
        "HOME": "/nonexistent",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(root / "tmp"),
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{closed}",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
    }
    made = Pod(root, ports, None, environment)  # type: ignore[arg-type]
    strace = [
        "strace",
        "-f",
        "--seccomp-bpf",
        "-y",
        "-o",
        str(root / "trace"),
        "-e",
        f"trace={CHANGES}",
    ]
    with (root / "log").open("wb") as log:
        made.process = await asyncio.create_subprocess_exec(
            *strace, str(AUTOSCALER), *made.arguments, env=environment, stdout=log, stderr=log
        )
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                assert made.process.returncode is None, (root / "log").read_text()
                try:
                    await made.get(container()["startupProbe"]["httpGet"]["path"])
                except aiohttp.ClientConnectorError:
                    await asyncio.sleep(0.05)
                else:
                    break
        yield made
    finally:
        if made.process.returncode is None:
            made.process.kill()
            await made.process.wait()


async def test_probes_get_the_answers_that_they_mean(pod: Pod) -> None:
    probes = {
        name: container()[f"{name}Probe"]["httpGet"]
        for name in ("startup", "liveness", "readiness")
    }
    assert {(one["port"], one["scheme"]) for one in probes.values()} == {("bootstrap", "HTTPS")}
    assert await pod.get(probes["startup"]["path"]) == (200, {"healthy": True, "reasons": []})
    assert await pod.get(probes["liveness"]["path"]) == (200, {"healthy": True, "reasons": []})
    status, answer = await pod.get(probes["readiness"]["path"])
    assert (status, answer["ready"]) == (503, False)
    assert "GitHub has not answered yet" in answer["reasons"]


async def test_the_request_of_the_document_gets_the_reasons_of_a_controller_that_is_not_ready(
    pod: Pod,
) -> None:
    # Kubelet's events have the status of a failed probe, and not the answer (`pkg/probe/http/http.go`).
    document = (ROOT / "docs" / "deploy.md").read_text()
    [(file, host, port, path)] = re.findall(
        r"^curl --cacert (\S+) https://([^:/]+):(\d+)(\S+)$", document, re.MULTILINE
    )
    assert f"port-forward {only('StatefulSet')['metadata']['name']}-0 {port}" in document
    assert int(port) == container_ports()["bootstrap"]
    assert file == "tls.crt"
    status, answer = await pod.get(path, host)
    assert (status, answer["ready"]) == (503, False)
    assert "GitHub has not answered yet" in answer["reasons"]


async def test_prometheus_gets_the_metrics_with_its_token(pod: Pod) -> None:
    [endpoint] = only("ServiceMonitor")["spec"]["endpoints"]
    name = endpoint["tlsConfig"]["serverName"]
    key = endpoint["authorization"]["credentials"]["key"]
    token = (pod.path(mounts()["secrets"]) / key).read_text()
    status, text = await pod.get(endpoint["path"], name, Authorization=f"Bearer {token}")
    assert status == 200
    assert "autoscaler_jobs_waiting" in text
    assert (await pod.get(endpoint["path"], name))[0] == 401


async def test_machines_accept_the_certificate_for_the_public_url(pod: Pod) -> None:
    host = re.fullmatch(r"https://([^:/]+):\d+", fleet()["server"]["public_url"])
    assert host is not None
    status, agent = await pod.get("/bootstrap/agent.py", host[1])
    assert status == 200
    assert agent.startswith("# The agent of a machine")
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await pod.get("/bootstrap/agent.py", "other.example.com")


async def test_the_path_of_the_ingress_is_on_the_webhook_port_alone(pod: Pod) -> None:
    [path] = only("Ingress")["spec"]["rules"][0]["http"]["paths"]
    async with aiohttp.ClientSession() as session:
        url = f"http://localhost:{pod.ports['webhook']}"
        async with session.post(url + path["path"], json={}) as answer:
            # It has no signature: the endpoint refuses it.
            assert answer.status in {400, 401}
        async with session.get(url + "/metrics") as answer:
            assert answer.status == 404
    assert (await pod.get(path["path"]))[0] == 404


async def test_the_command_of_the_document_reaches_the_controller(pod: Pod) -> None:
    document = (ROOT / "docs" / "deploy.md").read_text()
    found = re.search(r"-- autoscaler (unverified) \\\n +(.*)$", document, re.MULTILINE)
    assert found is not None
    option, file, *rest = found[2].split()
    assert rest == ["--url", "https://localhost:8443"]
    url = f"https://localhost:{pod.ports['bootstrap']}"
    _, output = await pod.run(found[1], option, str(pod.path(file)), "--url", url)
    # An answer of the controller, which cannot list the machines of this test.
    assert output.startswith("provider us-east-1: not listed since the controller's start")


async def test_a_second_controller_does_not_open_the_store(pod: Pod) -> None:
    file = pod.path(mounts()["fleet"]) / "second.yaml"
    first = (pod.path(mounts()["fleet"]) / "fleet.yaml").read_text()
    ports = zip(pod.ports.values(), free_ports(2), strict=True)
    for port, free in ports:
        first = first.replace(f":{port}", f":{free}")
    file.write_text(first)
    status, output = await pod.run("serve", "-c", str(file))
    assert status == 1
    assert "state.db" in output
    assert (await pod.get("/healthz"))[0] == 200


async def test_it_stops_on_sigterm_and_has_written_to_its_two_folders_alone(pod: Pod) -> None:
    """The last test: it stops the controller."""
    [controller, *_] = psutil.Process(pod.process.pid).children()
    controller.terminate()
    assert await asyncio.wait_for(pod.process.wait(), PATIENCE) == 0
    written = set()
    for line in (pod.root / "trace").read_text().splitlines():
        call = re.match(r"\d+ +(\w+)\((.*)", line)
        if call is None or " = -1 " in line:
            continue
        if call[1].startswith("open") and not WRITES.search(call[2]):
            continue
        written |= {Path(one) for one in re.findall(r'"(/[^"]*)"', call[2])}
    folders = [pod.path(mounts()[name]) for name in ("store", "tmp")]
    allowed = {Path("/dev/null")}
    assert [one for one in written - allowed if not any(map(one.is_relative_to, folders))] == []
    assert pod.path(mounts()["store"]) / "state.db" in written
