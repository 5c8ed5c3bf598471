"""One build of the image for Linux, of which all tests of its content read the result."""

import asyncio
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from autoscaler.app.agent_file import build_agent
from lab.ec2.lifecycle import Delays
from lab.ec2.service import LabEc2
from tests.ami.machines import RootHost
from tests.ami.repository import make_repository, make_runner, served
from tests.ami.root import base_root

AMI = Path(__file__).parents[2] / "ami"
VERSION = "2.338.0"


class RealClock:
    """Lab time is real time."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(frozen=True)
class Place:
    """What a build needs: an EC2 with a stock image, a key, a package repository, a runner."""

    ec2: LabEc2
    host: RootHost
    variables: dict[str, Any]


def _key_pair() -> tuple[bytes, str]:
    """Return a private key in PEM and its public key.

    Packer 1.6.6 signs with RSA keys in a way that OpenSSH no longer accepts, so it is none of RSA.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PrivateFormat.TraditionalOpenSSL
    private = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    encoding = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    return private, key.public_key().public_bytes(*encoding).decode()


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Place]:
    """Start the lab's EC2 with a stock image, whose machines run a real root file system."""
    served_folder, key, agent = folder / "served", folder / "key", folder / "agent.py"
    served_folder.mkdir()
    private, public = _key_pair()
    make_repository(served_folder)
    runner_sha256 = make_runner(served_folder, VERSION)
    agent.write_bytes(build_agent())
    key.write_bytes(private)
    key.chmod(0o600)
    with served(served_folder) as url, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        host = RootHost(folder / "machines", base_root(), port, public, url)
        ec2 = LabEc2(host, RealClock(), delays=Delays(0.1, 0.1, 3600.0, 0.1))
        ec2.images.imaging = 0.5
        host.ec2 = ec2
        await ec2.start()
        free.close()
        try:
            network = await ec2.seed_network(1)
            ec2.images.add("stock-1", root_device="/dev/sda1", snapshot_gb=8)
            variables = {
                "recipe": "linux-cpu",
                "image_name": "runner-linux-cpu-x64-1",
                "image_set": "runner",
                "source_name": "stock-1",
                "source_owner": "self",
                "runner_version": VERSION,
                "runner_url": f"{url}/runner.tar.gz",
                "runner_sha256": runner_sha256,
                "agent_file": str(agent),
                "agent_sha256": hashlib.sha256(agent.read_bytes()).hexdigest(),
                "region": ec2.region,
                "instance_type": "m7i.large",
                "subnet_id": network.subnets[0],
                "endpoint": ec2.endpoint_url,
                "source_cidrs": ["127.0.0.1/32"],
                "ssh_host": "127.0.0.1",
                "ssh_port": port,
                "ssh_keypair_name": "test",
                "ssh_private_key_file": str(key),
                "poll_seconds": 1,
            }
            yield Place(ec2, host, variables)
        finally:
            await host.close()
            await ec2.close()


def packer(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Packer. The newest Packer and the oldest one read the same templates."""
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": "lab",
        "AWS_SECRET_ACCESS_KEY": "lab",
        "CHECKPOINT_DISABLE": "1",
    }
    command = ["packer", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@dataclass(frozen=True)
class Built:
    """A build that has ended: Packer's output, the image's tags, and the folder with what it changed."""

    status: int
    output: str
    tags: dict[str, str]
    snapshot_tags: dict[str, str]
    disk: Path
    machines_left: int
    published: str
    """What `autoscaler images publish` printed."""

    def read(self, path: str) -> str:
        return (self.disk / path.lstrip("/")).read_text()


def start_bake(at: Place) -> subprocess.Popen[str]:
    """Start `autoscaler images bake`, which runs Packer and then starts a machine from the image."""
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": "lab",
        "AWS_SECRET_ACCESS_KEY": "lab",
        "AWS_ENDPOINT_URL": at.ec2.endpoint_url,
        "CHECKPOINT_DISABLE": "1",
    }
    words = ["--region", at.ec2.region, "--subnet", at.variables["subnet_id"], "--"]
    # The test's own stock image, runner and SSH server, in place of those of versions.yaml and AWS.
    for key in at.variables.keys() - {"recipe", "image_name", "agent_file", "agent_sha256"}:
        value = at.variables[key]
        words += ["-var", f"{key}={json.dumps(value) if isinstance(value, list) else value}"]
    code = "from autoscaler.cli import main; main()"
    command = [sys.executable, "-c", code, "images", "bake", "linux-cpu", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, env=environment, cwd=AMI.parent
    )


async def _build(folder: Path) -> Built:
    async with place(folder) as at:
        process = start_bake(at)
        printed, error = await asyncio.to_thread(process.communicate)
        output = printed + error
        assert process.returncode == 0, output
        [image] = at.ec2.images.named("autoscaler/linux-cpu-x64-*")
        return Built(
            process.returncode,
            output,
            dict(image.tags),
            dict(at.ec2.images.snapshots.find(image.snapshot_id).tags),
            at.host.disk(image.source_instance),
            len(at.ec2.machines_left()),
            next(line for line in printed.splitlines() if ": published after " in line),
        )


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The image for Linux, built by Packer on a machine of the lab."""
    folder = tmp_path_factory.mktemp("ami")
    folder.chmod(0o755)
    return asyncio.run(_build(folder))
