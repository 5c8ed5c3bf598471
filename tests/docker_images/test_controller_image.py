"""The controller's image: built from its Dockerfile by `autoscaler images build`, and started as in its pod."""

import asyncio
import json
import os
import ssl
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from tests.deploy.manifests import container, fleet, mounts, pod
from tests.deploy.pod_files import free_ports, write_certificate, write_fleet, write_secrets
from tests.docker_images.workshop import Workshop
from tests.patience import PATIENCE

IMAGE = "localhost/controller:tests"


@pytest.fixture(scope="module")
def image(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> str:
    versions = workshop.versions(tmp_path_factory.mktemp("versions"), "controller")
    done = workshop.build("controller", versions)
    assert done.returncode == 0, done.stdout
    return IMAGE


def test_the_labels_name_the_base_image_and_the_bill_of_materials(
    workshop: Workshop, image: str, made: tuple[str, Path]
) -> None:
    labels = workshop.settings(image)["Labels"]
    assert labels["org.opencontainers.image.base.name"] == workshop.base
    assert labels["org.opencontainers.image.base.digest"] == workshop.digest
    bill = json.loads((made[1] / labels["gpu-runner-autoscaler/sbom"].lstrip("/")).read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    found = {one["name"]: one for one in bill["components"]}
    assert found["aiohttp"]["purl"] == f"pkg:pypi/aiohttp@{version('aiohttp')}"
    status = (made[1] / "var/lib/dpkg/status").read_text()
    assert "Package: bash\nEssential: yes\nStatus: install ok installed\n" in status
    assert f"\nVersion: {found['bash']['version']}\n" in status
    assert found["bash"]["purl"].startswith("pkg:deb/debian/bash@")
    assert found["gpu-runner-autoscaler"]["version"] == "0.1.0"


def test_only_what_runs_is_in_the_image(made: tuple[str, Path]) -> None:
    """Neither the sources nor the development packages nor files that its user could change."""
    installed = made[1] / "opt/autoscaler"
    assert not (made[1] / "source").exists()
    assert not list(installed.rglob("pytest")) + list(installed.rglob("moto"))
    assert not (installed / "bin/autoscaler-lab").exists()
    others = [one for one in installed.rglob("*") if one.lstat().st_uid != 0]
    writable = [
        one for one in installed.rglob("*") if not one.is_symlink() and one.stat().st_mode & 2
    ]
    assert others + writable == []


async def test_it_answers_readyz_as_in_its_pod(
    workshop: Workshop, image: str, made: tuple[str, Path], tmp_path: Path
) -> None:
    settings = workshop.settings(image)
    security = pod()["securityContext"]
    assert settings["User"] == f"{security['runAsUser']}:{security['runAsGroup']}"
    assert settings["Cmd"] == container()["args"]
    *chosen, closed = free_ports(3)
    ports = dict(zip(("bootstrap", "webhook"), chosen, strict=True))
    write_secrets(tmp_path)
    await write_certificate(tmp_path)
    write_fleet(tmp_path, ports, closed, seen_as="")
    volumes = []
    for name in ("fleet", "secrets", "tls", "store"):
        folder = tmp_path / str(mounts()[name]).lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        for path in (folder, *folder.iterdir()):
            os.chown(path, security["runAsUser"], security["runAsGroup"])
        volumes += ["--volume", f"{folder}:{mounts()[name]}"]
    aws = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{closed}", "AWS_ACCESS_KEY_ID": "x"}
    variables = {**aws, "AWS_SECRET_ACCESS_KEY": "x", "HOME": "/nonexistent"}
    given = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    command = [*settings["Entrypoint"], *settings["Cmd"]]
    authority = tmp_path / fleet()["server"]["tls"]["ca_file"].lstrip("/")
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(  # noqa: ASYNC220 - only its start
            ["buildah", "run", *volumes, *given, made[0], "--", *command],
            env=workshop.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            status, answer = await readyz(process, ports["bootstrap"], authority, tmp_path / "log")
            users = {
                one.uids().real for one in psutil.Process(process.pid).children(recursive=True)
            }
        finally:
            end(process)
    assert (status, answer["ready"]) == (503, False)
    assert "GitHub has not answered yet" in answer["reasons"]
    assert security["runAsUser"] in users


async def readyz(
    process: subprocess.Popen[bytes], port: int, authority: Path, log: Path
) -> tuple[int, Any]:
    """Return the controller's answer, once it has one."""
    trust = ssl.create_default_context(cafile=str(authority))
    async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
        while True:
            assert process.poll() is None, log.read_text()  # noqa: ASYNC240 - it has ended
            try:
                async with session.get(f"https://localhost:{port}/readyz", ssl=trust) as answer:
                    return answer.status, await answer.json()
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.05)


def end(process: subprocess.Popen[bytes]) -> None:
    """End buildah and what it runs in the container."""
    for one in psutil.Process(process.pid).children(recursive=True):
        one.kill()
    process.kill()
    process.wait(PATIENCE)
