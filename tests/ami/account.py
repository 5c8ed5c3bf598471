"""An account at the laboratory's EC2, with a stock image, and the commands that use it."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from autoscaler.app.agent_file import build_agent
from lab.ec2.service import LabEc2
from lab.laboratory import LabFleet, Laboratory
from lab.ports import free_ports
from tests.agent.certificates import make_certificate
from tests.ami import gpus
from tests.ami.distribution import DEBS, make_runner
from tests.ami.machines import RootHost
from tests.ami.repository import Signer, make_repository, served, sha256
from tests.ami.stock import stock_image
from tests.watchdog.children import kill

AMI = Path(__file__).parents[2] / "ami"
VERSION = "2.338.0"
RECIPES = ("linux-cpu", "linux-gpu", "linux-rocm")
_Place = TypeVar("_Place")
_Baked = TypeVar("_Baked")


@dataclass(frozen=True)
class Account:
    """A laboratory whose EC2 has a stock image, and a key and downloads for a build."""

    lab: Laboratory
    ports: Mapping[str, int]
    """The port of each build machine's SSH server, by recipe."""
    versions: Path
    """A versions.yaml with the addresses of this place."""
    variables: dict[str, Any]
    """Of Packer's template."""

    @property
    def ec2(self) -> LabEc2:
        return self.lab.ec2


@dataclass(frozen=True)
class Place(Account):
    """An account whose machines run real root file systems."""

    host: RootHost


def key_pair() -> tuple[bytes, str]:
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


@contextmanager
def publishers(folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """Serve everything that a build downloads. Yields the URL and the folders of the stock image."""
    site, certificate, key = folder / "served", folder / "server.pem", folder / "server.key"
    signer = Signer(folder / "gnupg")
    try:
        make_repository(site / "ubuntu", DEBS, signer)
        gpus.publish(site, signer)
        make_runner(site, VERSION)
    finally:
        signer.close()
    for file, content in zip((certificate, key), make_certificate("127.0.0.1"), strict=True):
        file.write_bytes(content)
    with served(site, certificate, key) as url:
        yield url, stock_image(folder / "stock", url, signer, certificate)


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Place]:
    """Start a laboratory with a stock image, whose machines run real root file systems."""
    key, agent, versions = folder / "key", folder / "agent.py", folder / "versions.yaml"
    private, public = key_pair()
    agent.write_bytes(build_agent())
    key.write_bytes(private)
    key.chmod(0o600)
    ports = dict(zip(RECIPES, free_ports(len(RECIPES)), strict=True))
    with publishers(folder) as (url, stock):
        versions.write_text(gpus.versions(folder / "served", url))
        # The key pair of a build has the name of its recipe.
        host = RootHost(folder / "machines", stock, ports, public)
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
                "runner_sha256": sha256(folder / "served" / "runner.tar.gz"),
                "agent_file": str(agent),
                "agent_sha256": sha256(agent),
                "region": lab.ec2.region,
                "instance_type": "m7i.large",
                "subnet_id": fleet["providers"]["lab"]["ec2"]["subnets"][0],
                "endpoint": lab.ec2.endpoint_url,
                "source_cidrs": ["127.0.0.1/32"],
                "ssh_host": "127.0.0.1",
                "ssh_port": ports["linux-cpu"],
                "ssh_keypair_name": "linux-cpu",
                "ssh_private_key_file": str(key),
                "poll_seconds": 1,
            }
            yield Place(lab, ports, versions, variables, host)


def packer(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Packer. The newest Packer and the oldest one read the same templates."""
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": "lab",
        "AWS_SECRET_ACCESS_KEY": "lab",
        "CHECKPOINT_DISABLE": "1",
    }
    command = ["packer", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def start_autoscaler(
    at: Account, *words: str, output: int | None = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Start a command of `autoscaler` that takes a region and a subnet, in the root of the repository.

    `output` is where it writes; None: where this process writes.
    """
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": "lab",
        "AWS_SECRET_ACCESS_KEY": "lab",
        "AWS_ENDPOINT_URL": at.ec2.endpoint_url,
        "CHECKPOINT_DISABLE": "1",
    }
    code = "from autoscaler.cli import main; main()"
    place = ["--region", at.ec2.region, "--subnet", at.variables["subnet_id"]]
    command = [sys.executable, "-c", code, *words[:2], *place, *words[2:]]
    return subprocess.Popen(
        command, stdout=output, stderr=output, text=True, env=environment, cwd=AMI.parent
    )


def bake_options(at: Account, recipe: str) -> list[str]:
    """Return the options of `autoscaler images bake` that have the addresses of this place.

    They name the test's own stock image, runner and SSH server, in place of those of versions.yaml and AWS.
    """
    own = {"recipe", "image_name", "agent_file", "agent_sha256", "instance_type"}
    given = {key: value for key, value in at.variables.items() if key not in own}
    given |= {"ssh_keypair_name": recipe, "ssh_port": at.ports[recipe]}
    words = ["--file", str(at.versions), "--"]
    for key, value in given.items():
        words += ["-var", f"{key}={json.dumps(value) if isinstance(value, list) else value}"]
    return words


def start_bake(
    at: Account, recipe: str = "linux-cpu", output: int | None = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Start `autoscaler images bake`, which runs Packer and then starts a machine from the image.

    `output` is where it writes; None: where this process writes.
    """
    words = ["images", "bake", recipe, *bake_options(at, recipe)]
    return start_autoscaler(at, *words, output=output)


async def printed_by(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Return what a command wrote to stdout and stderr. Kill it and its Packer if the test ends before."""
    try:
        return await asyncio.to_thread(process.communicate)
    except asyncio.CancelledError:
        kill([process.pid])
        raise


async def bake_all(
    bake: Callable[[_Place, str], Coroutine[None, None, _Baked]],
    account: _Place,
    recipes: Sequence[str],
) -> dict[str, _Baked]:
    """Return the images by recipe, built at the same time. A build that fails ends the others."""
    async with asyncio.TaskGroup() as group:
        builds = {one: group.create_task(bake(account, one)) for one in recipes}
    return {one: build.result() for one, build in builds.items()}
