"""Shared by the tests of the lab's EC2: a host that keeps its requests, the real SDK, a started lab."""

import asyncio
from typing import Any

import boto3
from botocore.config import Config

from lab.ec2.seeding import Network
from lab.ec2.service import LabEc2
from lab.machine_host import LabMachine

PENDING, SHUTTING_DOWN, LISTED = 30.0, 40.0, 3600.0


class FakeHost:
    """A machine host that keeps its requests, in order."""

    def __init__(self) -> None:
        self.machines: dict[str, LabMachine] = {}
        self.shut_off: list[str] = []
        self.killed: list[str] = []
        self.hold: asyncio.Event | None = None
        self.written: dict[str, str] = {}

    async def boot(self, machine: LabMachine) -> None:
        if self.hold is not None:
            await self.hold.wait()
        self.machines[machine.instance_id] = machine

    async def shut_down(self, instance_id: str) -> None:
        self.shut_off.append(instance_id)

    async def kill(self, instance_id: str) -> None:
        self.killed.append(instance_id)

    def console(self, instance_id: str) -> str:
        return self.written.get(instance_id, "")

    async def close(self) -> None:
        self.machines.clear()


class ManualClock:
    """A clock that only tests advance."""

    def __init__(self, now: float = 1.8e9) -> None:
        self._now = now
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._now + seconds, woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Advance the time, and run everything that is due by then."""
        await settle()
        self._now += seconds
        due = [woken for at, woken in self._sleepers if at <= self._now]
        self._sleepers = [one for one in self._sleepers if one[0] > self._now]
        for woken in due:
            if not woken.done():
                woken.set_result(None)
        await settle()


async def settle() -> None:
    """Let tasks that are ready run, and those that they start."""
    for _ in range(10):
        await asyncio.sleep(0)


class Sdk:
    """The real boto3 client, called in a thread so that the lab's loop goes on."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def __call__(self, operation: str, **params: Any) -> Any:
        return await asyncio.to_thread(getattr(self._client, operation), **params)


def connect(lab: LabEc2, service: str = "ec2", region: str | None = None) -> Sdk:
    # The stubs want literal names of services.
    client: Any = boto3.client
    return Sdk(
        client(
            service,
            region_name=region or lab.region,
            endpoint_url=lab.endpoint_url,
            aws_access_key_id="lab",
            aws_secret_access_key="lab",
            config=Config(retries={"total_max_attempts": 1}, max_pool_connections=4),
        )
    )


class Fixture:
    """A started lab with a network, an image, a launch template and a client."""

    def __init__(
        self, lab: LabEc2, host: FakeHost, clock: ManualClock, network: Network, sdk: Sdk
    ) -> None:
        self.lab = lab
        self.clock = clock
        self.host = host
        self.network = network
        self.sdk = sdk
        self.image = lab.images.add("runner-linux-1", snapshot_gb=30)
        self.template = ""

    def sdk_of(self, service: str) -> Sdk:
        """Return a client of another service."""
        return connect(self.lab, service)

    async def make_template(self, **changes: Any) -> str:
        data = {
            "ImageId": self.image.id,
            "UserData": "IyEvYmluL3NoCg==",
            "InstanceInitiatedShutdownBehavior": "terminate",
            "SecurityGroupIds": [self.network.security_group],
            "IamInstanceProfile": {"Name": "runner"},
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
            "BlockDeviceMappings": [
                {
                    "DeviceName": "/dev/xvda",
                    "Ebs": {"VolumeSize": 100, "DeleteOnTermination": True, "Encrypted": True},
                }
            ],
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": [{"Key": "from", "Value": "template"}]}
            ],
        } | changes
        made = await self.sdk(
            "create_launch_template",
            LaunchTemplateName=f"template-{self.template}",
            LaunchTemplateData=data,
        )
        self.template = made["LaunchTemplate"]["LaunchTemplateId"]
        return self.template

    async def fleet(self, count: int, **changes: Any) -> Any:
        """CreateFleet over two types in every zone, on demand unless a test asks otherwise."""
        capacity_type = changes.pop("capacity_type", "on-demand")
        overrides = changes.pop("overrides", None) or [
            {"InstanceType": instance_type, "SubnetId": subnet}
            for instance_type in ("g5.xlarge", "g6.xlarge")
            for subnet in self.network.subnets
        ]
        request = {
            "Type": "instant",
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": {
                        "LaunchTemplateId": self.template,
                        "Version": "1",
                    },
                    "Overrides": overrides,
                }
            ],
            "TargetCapacitySpecification": {
                "TotalTargetCapacity": count,
                "DefaultTargetCapacityType": capacity_type,
            },
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": [{"Key": "sku", "Value": "gpu"}]}
            ],
        }
        return await self.sdk("create_fleet", **(request | changes))

    async def running(self, count: int = 1) -> list[str]:
        """Launch machines and let their `pending` pass."""
        names = launched(await self.fleet(count))
        await self.clock.advance(PENDING)
        assert set(names) <= set(self.host.machines)
        return names

    async def ended(self, names: list[str]) -> None:
        """Terminate machines and let their `shutting-down` pass."""
        await self.sdk("terminate_instances", InstanceIds=names)
        await self.clock.advance(SHUTTING_DOWN)

    async def described(self, **params: Any) -> list[Any]:
        answer = await self.sdk("describe_instances", **params)
        return [one for group in answer["Reservations"] for one in group["Instances"]]


def launched(fleet: Any) -> list[str]:
    """Instance ids of a CreateFleet answer."""
    return [name for group in fleet["Instances"] for name in group["InstanceIds"]]
