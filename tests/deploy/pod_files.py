"""The files of the controller's pod, written to a folder: Secrets, certificate and fleet.yaml."""

import asyncio
import re
import shutil
import socket
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.deploy.manifests import ROOT, container, mounts, only

TOKEN = "0123456789abcdef" * 2


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def write_secrets(root: Path) -> None:
    folder = root / str(mounts()["secrets"]).lstrip("/")
    folder.mkdir(parents=True)
    key = rsa.generate_private_key(65_537, 2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    (folder / "github-app.pem").write_bytes(pem)
    for name in ("webhook-secret", "metrics-token"):
        (folder / name).write_text(TOKEN)
    (folder / "admin-token").write_text(f"alice operate {TOKEN}\n")


async def write_certificate(root: Path) -> None:
    """Make the certificate with the command of the document."""
    folder = root / str(mounts()["tls"]).lstrip("/")
    folder.mkdir(parents=True)
    document = (ROOT / "docs" / "deploy.md").read_text()
    [command] = re.findall(r"^openssl req .*$", document, re.MULTILINE)
    made = await asyncio.create_subprocess_shell(
        command, cwd=folder, stderr=asyncio.subprocess.DEVNULL
    )
    assert await made.wait() == 0
    shutil.copy(folder / "tls.crt", folder / "ca.crt")


def write_fleet(root: Path, ports: dict[str, int], closed: int, seen_as: str | None = None) -> None:
    """Write the fleet.yaml with the paths of this folder, these ports, and a GitHub that does not answer.

    `seen_as` is the path of this folder for the controller, if it is another one there.
    """
    prefix = str(root) if seen_as is None else seen_as
    text = only("ConfigMap")["data"]["fleet.yaml"]
    for path in (path for name, path in mounts().items() if name != "tmp"):
        text = text.replace(f"{path}/", f"{prefix}{path}/")
    for port in container()["ports"]:
        text = text.replace(f"0.0.0.0:{port['containerPort']}", f"0.0.0.0:{ports[port['name']]}")
    text = text.replace("github:\n", f"github:\n  api_url: http://127.0.0.1:{closed}\n")
    folder = root / str(mounts()["fleet"]).lstrip("/")
    folder.mkdir(parents=True)
    (folder / "fleet.yaml").write_text(text)
