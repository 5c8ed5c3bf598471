"""One moto, one front and one worker process for all tests of EC2; a fleet of its own for each."""

import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import boto3
import pytest
import pytest_asyncio
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer
from aiohttp.web import Application
from moto.server import ThreadedMotoServer

from autoscaler.controller.ports.provider import LaunchOrder
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    LaunchRequestId,
    ProviderName,
    SkuName,
)
from autoscaler.providers.ec2.configuration import Ec2Section
from autoscaler.providers.ec2.provider import Ec2Provider
from autoscaler.providers.ec2.settings import Ec2Settings, NamedImage
from autoscaler.providers.ec2.worker.channel import Timeouts, WorkerChannel
from tests.patience import PATIENCE
from tests.providers.contract import MakeOrder
from tests.providers.doubles import ManualClock, RememberingTelemetry
from tests.providers.ec2_front import Ec2Front
from tests.providers.ec2_keys import option_of, sku_of

REGION = "us-east-1"
ACCOUNT = "123456789012"
IMAGE_OWNER = "099720109477"
IMAGE_NAME = "ubuntu/images/*ubuntu-*-16.04-*"
SKU = SkuName("linux.g5.xlarge")

_fleets = itertools.count()


@pytest.fixture(scope="session", autouse=True)
def _credentials() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "testing")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def subnets(moto_url: str, _credentials: None) -> tuple[str, ...]:
    """Two subnets in zone a, one with more addresses than the other, and one in zone b."""
    client = boto3.client("ec2", region_name=REGION, endpoint_url=moto_url)
    vpc = client.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    wanted = [
        ("10.0.0.0/26", "us-east-1a"),
        ("10.0.1.0/24", "us-east-1a"),
        ("10.0.2.0/24", "us-east-1b"),
    ]
    made = [
        client.create_subnet(VpcId=vpc, CidrBlock=block, AvailabilityZone=zone)
        for block, zone in wanted
    ]
    client.close()
    return tuple(one["Subnet"]["SubnetId"] for one in made)


@pytest.fixture
def client(moto_url: str, _credentials: None) -> Iterator[Any]:
    made = boto3.client("ec2", region_name=REGION, endpoint_url=moto_url)
    yield made
    made.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def front(moto_url: str) -> AsyncIterator[Ec2Front]:
    async with ClientSession() as session:
        yield Ec2Front(moto_url, session)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def endpoint(front: Ec2Front) -> AsyncIterator[str]:
    app = Application()
    app.router.add_post("/", front.handle)
    server = TestServer(app, host="127.0.0.1")
    await server.start_server()
    yield str(server.make_url("")).rstrip("/")
    front.release.set()
    await server.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def worker(endpoint: str, _credentials: None) -> AsyncIterator[WorkerChannel]:
    channel = WorkerChannel(
        REGION, endpoint, Timeouts(connect=PATIENCE, read=PATIENCE, answer=PATIENCE)
    )
    yield channel
    await channel.close()


class Borrowed:
    """The session's worker, which a single provider must not close."""

    def __init__(self, worker: WorkerChannel) -> None:
        self._worker = worker

    async def call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        return await self._worker.call(operation, arguments)

    async def close(self) -> None: ...


@pytest.fixture
def settings(subnets: tuple[str, ...]) -> Ec2Settings:
    image = NamedImage(name=IMAGE_NAME, owner=IMAGE_OWNER)
    options = {0: option_of("g5.xlarge", "g4dn.xlarge")}
    sku = sku_of(SKU, image, "#!/bin/sh\n", options, disk_gb=100)
    return Ec2Settings(
        name=ProviderName("east"),
        fleet=f"fleet-{next(_fleets)}",
        installations=Installations(InstallationId("f00dface")),
        section=Ec2Section(
            region=REGION,
            subnets=subnets,
            security_groups=("sg-0a",),
            instance_profile="gpu-runner",
        ),
        skus={SKU: sku},
    )


@pytest.fixture
def telemetry() -> RememberingTelemetry:
    return RememberingTelemetry()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest_asyncio.fixture(loop_scope="session")
async def provider(
    settings: Ec2Settings,
    telemetry: RememberingTelemetry,
    clock: ManualClock,
    worker: WorkerChannel,
) -> AsyncIterator[Ec2Provider]:
    opened = Ec2Provider(settings, telemetry, clock, Borrowed(worker))
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def make_order(settings: Ec2Settings) -> MakeOrder:
    def make(count: int, token: str) -> LaunchOrder:
        types = ("g5.xlarge", "g4dn.xlarge")
        zones = ("us-east-1a", "us-east-1b")
        return LaunchOrder(
            launch_request=LaunchRequestId(f"{token}-call"),
            sku=SKU,
            option=0,
            capacity_type=CapacityType.ON_DEMAND,
            offerings=tuple(f"east/{one}/{zone}/on-demand" for one in types for zone in zones),
            count=count,
            token=f"{settings.fleet}-{token}",
        )

    return make
