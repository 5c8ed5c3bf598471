"""The controller's host: the real host.py with the real AWS CLI, against moto.

Stand-ins play what needs another machine or privileges: the metadata service, the device of an attached volume,
and `mount`, which links a folder to the volume's content. `blkid` and `mkfs.ext4` are the real ones.
"""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from lab.terraform.commands import SOURCE
from lab.terraform.parts import find_python_program
from tests.terraform.account import FLEET, REGION, client, create_secrets, credentials

PROGRAM = SOURCE / "modules" / "controller" / "host" / "host.py"
MOUNT = """#!/bin/sh
# mount -o OPTIONS DEVICE FOLDER
content="$(readlink -f "$3").content"
mkdir -p "$content"
rmdir "$4"
ln -s "$content" "$4"
echo "$*" >> "$CALLS"
"""
BACKUP = "state.db.gz"


class Metadata:
    """The metadata service of one instance, version 2."""

    def __init__(self, instance: str, address: str) -> None:
        self._values = {"instance-id": instance, "local-ipv4": address}
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> None:
        """Listen on a free port of loopback."""
        app = web.Application()
        app.router.add_put("/latest/api/token", self._token)
        app.router.add_get("/latest/meta-data/{name}", self._value)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _token(self, request: web.Request) -> web.Response:
        assert request.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        return web.Response(text="a-token")

    async def _value(self, request: web.Request) -> web.Response:
        if request.headers.get("X-aws-ec2-metadata-token") != "a-token":
            return web.Response(status=401)
        return web.Response(text=self._values[request.match_info["name"]])


class Account:
    """What Terraform makes for the host: a volume, a bucket and secrets; and a disk for each volume."""

    def __init__(self, url: str, folder: Path, values: Mapping[str, str]) -> None:
        self.url = url
        self.folder = folder
        self.ec2 = client(url, "ec2")
        self.s3 = client(url, "s3")
        # The name of a bucket is unique among all accounts.
        self.bucket = f"ci-gpu-{secrets.token_hex(6)}"
        self.s3.create_bucket(Bucket=self.bucket)
        self.s3.put_bucket_versioning(
            Bucket=self.bucket, VersioningConfiguration={"Status": "Enabled"}
        )
        self.secrets = create_secrets(url, values)
        self.devices = folder / "by-id"
        self.devices.mkdir()
        self.volume = ""
        self.create_volume()

    def create_volume(self) -> None:
        """Create a volume for the hosts that come, and a disk with its content."""
        volume = self.ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=20, VolumeType="gp3")
        self.volume = str(volume["VolumeId"])
        disk = self.folder / f"disk of {self.volume}"
        with disk.open("wb") as file:
            file.truncate(16 * 1024 * 1024)
        name = "nvme-Amazon_Elastic_Block_Store_" + self.volume.replace("-", "")
        (self.devices / name).symlink_to(disk)

    def launch(self, tags: Mapping[str, str]) -> str:
        """Launch an instance. Return its ID."""
        listed: Any = [{"Key": key, "Value": value} for key, value in tags.items()]
        answer = self.ec2.run_instances(
            ImageId="ami-12345678",
            InstanceType="m7i.large",
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[{"ResourceType": "instance", "Tags": listed}],
        )
        return str(answer["Instances"][0]["InstanceId"])

    def attach(self, instance: str) -> None:
        """Attach the volume to an instance."""
        self.ec2.attach_volume(VolumeId=self.volume, InstanceId=instance, Device="/dev/sdf")

    def lose(self, instance: str, volume: bool) -> None:
        """Terminate an instance, which detaches its volume; with `volume`, the volume is lost, too."""
        self.ec2.terminate_instances(InstanceIds=[instance])
        if volume:
            self.ec2.delete_volume(VolumeId=self.volume)

    def stop(self, instance: str) -> None:
        """Stop an instance, which keeps its volume."""
        self.ec2.stop_instances(InstanceIds=[instance])

    def put_fleet_file(self, content: str) -> None:
        """Put fleet.yaml into the bucket, as Terraform does."""
        self.s3.put_object(Bucket=self.bucket, Key="fleet.yaml", Body=content.encode())

    def holders(self) -> list[str]:
        """Return the instances that have the volume."""
        (found,) = self.ec2.describe_volumes(VolumeIds=[self.volume])["Volumes"]
        return [str(one["InstanceId"]) for one in found["Attachments"]]


class Host:
    """One host with folders of its own. `name` is that of its folder.

    `replica` is that section of its settings; `address` is where other hosts reach it.
    """

    def __init__(
        self,
        account: Account,
        name: str,
        replica: Mapping[str, Any] | None = None,
        address: str = "127.0.0.1",
    ) -> None:
        self.account = account
        self.address = address
        self._replica = replica
        self.instance = account.launch({"gpu-runner-autoscaler:controller": FLEET})
        self.folder = account.folder / name
        self.data = self.folder / "data"
        self.run = self.folder / "run"
        self.calls = self.folder / "calls"
        self._metadata = Metadata(self.instance, address)

    async def start(self) -> None:
        """Write the host's settings and programs, and start its metadata service."""
        await self._metadata.start()
        programs = self.folder / "bin"
        programs.mkdir(parents=True)
        cli = find_python_program("aws")
        aws = f'#!/bin/sh\nexec env PYTHONPATH={cli} {sys.executable} {cli}/bin/aws "$@"\n'
        # The real command, but for `check`, which would want the whole of a fleet's files.
        check = 'if [ "$1" = check ]; then exec grep -q "^fleet:" "$2"; fi'
        program = f'#!/bin/sh\n{check}\nexec {sys.executable} -m autoscaler.cli "$@"\n'
        restart = '#!/bin/sh\necho restarted >> "$CALLS"\n'
        scripts = {"aws": aws, "mount": MOUNT, "autoscaler": program, "restart": restart}
        for name, text in scripts.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        files = ("github-app.pem", "webhook-secret", "admin-token", "metrics-token")
        settings = {
            "fleet": FLEET,
            "region": REGION,
            "replica": self._replica,
            "volume": self.account.volume if self._replica is None else None,
            "devices": str(self.account.devices),
            "bucket": self.account.bucket,
            "backup": BACKUP,
            "data": str(self.data),
            "run": str(self.run),
            "user": os.getuid(),
            "secrets": dict(zip(files, self.account.secrets.values(), strict=True)),
            "namespace": "gpu-runner-autoscaler",
            "autoscaler": [str(programs / "autoscaler")],
            "config": str(self.run),
            "restart": [str(programs / "restart")],
        }
        (self.folder / "host.json").write_text(json.dumps(settings))

    async def close(self) -> None:
        """Stop the metadata service."""
        await self._metadata.close()

    def command(self, word: str) -> tuple[int, str]:
        """Run host.py. Return its exit status and output. Blocks."""
        with self.process(word) as process:
            printed, _ = process.communicate()
        return process.returncode, printed

    def process(self, word: str) -> subprocess.Popen[str]:
        """Start host.py and return at once. Its output is that of both streams."""
        environment = {
            **credentials(self.account.url),
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}:/usr/sbin:/sbin",
            "HOST_SETTINGS": str(self.folder / "host.json"),
            "HOST_PAUSE": "0.2",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": self._metadata.url,
            "CALLS": str(self.calls),
            "NO_PROXY": "127.0.0.1",
        }
        return subprocess.Popen(
            [sys.executable, str(PROGRAM), word],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def succeed(self, word: str) -> str:
        """Run host.py and return its output. Blocks. Raises AssertionError if it fails."""
        status, printed = self.command(word)
        assert status == 0, printed
        return printed


def metrics(url: str) -> list[dict[str, Any]]:
    """Return the metrics that hosts have counted."""
    answer = client(url, "cloudwatch").list_metrics(Namespace="gpu-runner-autoscaler")
    found: list[dict[str, Any]] = answer["Metrics"]
    return found
