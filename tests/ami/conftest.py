"""One build of the image for Linux, of which all tests of its content read the result."""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from autoscaler.app.agent_file import build_agent
from autoscaler.images.smoke_test import PUBLISHED
from lab.ec2.images import Image
from lab.ec2.instances import Instance
from lab.ec2.service import LabEc2
from lab.laboratory import LabFleet, Laboratory
from lab.ports import free_ports
from tests.ami.machines import RootHost
from tests.ami.repository import make_repository, make_runner, served
from tests.ami.root import base_root

AMI = Path(__file__).parents[2] / "ami"
VERSION = "2.338.0"


@dataclass(frozen=True)
class Place:
    """A laboratory whose EC2 has a stock image, and a key, packages and a runner for a build."""

    lab: Laboratory
    host: RootHost
    variables: dict[str, Any]

    @property
    def ec2(self) -> LabEc2:
        return self.lab.ec2


def _key_pair() -> tuple[bytes, str]:
    """Return a private key in PEM and its public key.

    Packer 1.6.6 signs with RSA keys in a way that OpenSSH no longer accepts, so it is none of RSA.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PrivateFormat.TraditionalOpenSSL
    private = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    encoding = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    return private, key.public_key().public_bytes(*encoding).decode()


FLEET = LabFleet(
    "acme",
    ("widgets",),
    {
        "baked": {
            "on": [{"provider": "lab", "instance_types": ["m7i.large"]}],
            "image": {"name": "autoscaler/linux-cpu-x64-*", "owner": "self"},
        }
    },
    scale=1.0,
)


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Place]:
    """Start a laboratory with a stock image, whose machines run real root file systems."""
    served_folder, key, agent = folder / "served", folder / "key", folder / "agent.py"
    served_folder.mkdir()
    private, public = _key_pair()
    make_repository(served_folder)
    runner_sha256 = make_runner(served_folder, VERSION)
    agent.write_bytes(build_agent())
    key.write_bytes(private)
    key.chmod(0o600)
    [port] = free_ports(1)
    with served(served_folder) as url:
        host = RootHost(folder / "machines", base_root(), port, public, url)
        async with Laboratory(FLEET, machines=host) as lab:
            host.ec2 = lab.ec2
            lab.ec2.images.imaging = 0.5
            lab.ec2.images.add("stock-1", root_device="/dev/sda1", snapshot_gb=8)
            fleet = yaml.safe_load((lab.folder / "fleet.yaml").read_text())
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
                "region": lab.ec2.region,
                "instance_type": "m7i.large",
                "subnet_id": fleet["providers"]["lab"]["ec2"]["subnets"][0],
                "endpoint": lab.ec2.endpoint_url,
                "source_cidrs": ["127.0.0.1/32"],
                "ssh_host": "127.0.0.1",
                "ssh_port": port,
                "ssh_keypair_name": "test",
                "ssh_private_key_file": str(key),
                "poll_seconds": 1,
            }
            yield Place(lab, host, variables)


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
    """A build that has ended: the image, what the command printed, the folder with what it changed."""

    image: Image
    output: str
    seconds: float
    snapshot_tags: dict[str, str]
    disk: Path
    machines_left: list[Instance]
    published: str
    """What `autoscaler images publish` printed."""

    def read(self, path: str) -> str:
        return (self.disk / path.lstrip("/")).read_text()


def start_autoscaler(at: Place, *words: str) -> subprocess.Popen[str]:
    """Start a command of `autoscaler` that takes a region and a subnet, in the root of the repository."""
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": "lab",
        "AWS_SECRET_ACCESS_KEY": "lab",
        "AWS_ENDPOINT_URL": at.ec2.endpoint_url,
        "CHECKPOINT_DISABLE": "1",
    }
    code = "from autoscaler.cli import main; main()"
    place = ["--region", at.ec2.region, "--subnet", at.variables["subnet_id"]]
    command = [sys.executable, "-c", code, *words[:2], *place, *words[2:]]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, env=environment, cwd=AMI.parent
    )


def start_bake(at: Place) -> subprocess.Popen[str]:
    """Start `autoscaler images bake`, which runs Packer and then starts a machine from the image."""
    words = ["images", "bake", "linux-cpu", "--"]
    # The test's own stock image, runner and SSH server, in place of those of versions.yaml and AWS.
    for key in at.variables.keys() - {"recipe", "image_name", "agent_file", "agent_sha256"}:
        value = at.variables[key]
        words += ["-var", f"{key}={json.dumps(value) if isinstance(value, list) else value}"]
    return start_autoscaler(at, *words)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def account(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """An account with nothing but a stock image."""
    folder = tmp_path_factory.mktemp("ami")
    folder.chmod(0o755)
    async with place(folder) as at:
        yield at


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def built(account: Place) -> Built:
    """The image for Linux, built by Packer on a machine of the lab."""
    began = time.monotonic()
    process = start_bake(account)
    printed, error = await asyncio.to_thread(process.communicate)
    output = printed + error
    assert process.returncode == 0, output
    [image] = account.ec2.images.named("autoscaler/linux-cpu-x64-*")
    return Built(
        image,
        output,
        time.monotonic() - began,
        dict(account.ec2.images.snapshots.find(image.snapshot_id).tags),
        account.host.disk(image.source_instance),
        [one for one in account.ec2.machines_left() if one.ended_at is None],
        next(line for line in printed.splitlines() if ": published after " in line),
    )


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def serving(account: Place, built: Built) -> float:
    """Start `autoscaler serve`; return the seconds until it was ready.

    There is a newer image that was not tested.
    """
    tags = {key: value for key, value in built.image.tags.items() if key != PUBLISHED}
    account.ec2.images.publish(built.image, "autoscaler/linux-cpu-x64-29991231-000000", tags)
    began = time.monotonic()
    await account.lab.start_controller()
    return time.monotonic() - began
