"""The lab's EC2: one loopback server for the SDK and for the machines' metadata.

Its identity documents verify only against its own certificate.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from autoscaler.controller.ports.clock import Clock
from lab.ec2 import event_queue
from lab.ec2.actions import Actions
from lab.ec2.describing import InstanceList
from lab.ec2.event_queue import EventQueue
from lab.ec2.faults import Faults
from lab.ec2.front import Answerers, Front, RequestRecorder
from lab.ec2.identity import IdentitySigner, render_document
from lab.ec2.images import Images
from lab.ec2.instances import Instance, Instances, InstanceState
from lab.ec2.launching import Launcher
from lab.ec2.lifecycle import Delays, Lifecycle
from lab.ec2.metadata import MetadataService
from lab.ec2.moto import MotoClient, MotoProcess
from lab.ec2.placement_groups import PlacementGroups
from lab.ec2.price_list import PriceList
from lab.ec2.quotas import Quotas
from lab.ec2.reservations import Reservations
from lab.ec2.sales import Sales
from lab.ec2.seeding import Network, seed_network
from lab.ec2.service_quotas import ServiceQuotas
from lab.ec2.subnets import Subnets
from lab.ec2.templates import LaunchTemplates
from lab.ec2.throttling import Throttling
from lab.ec2.volumes import Volumes
from lab.machine_host import MachineHost


@dataclass(frozen=True, slots=True)
class Account:
    """The AWS account and region."""

    id: str = "123456789012"
    region: str = "us-east-1"


@dataclass(frozen=True, slots=True)
class _Running:
    """The parts that exist between `start` and `close`."""

    front: Front
    client: MotoClient
    signer: IdentitySigner
    metadata: MetadataService


class LabEc2:
    """EC2 for one account in one region. Call `start` before anything but `faults` and `images`.

    `host` runs the machines; the caller closes it. `clock` gives lab time. If `moto` is given, it is shared
    (one account for each LabEc2) and left running; otherwise `start` starts one. Without a `signer` of identity
    documents, a new one is created. It listens on `port` of loopback; 0 is any free one. Tests may change
    `faults`, `quotas`, `prices`, `throttling` and `delays` at any time and read `instances`. `events` is the
    queue at `queue_url`, which receives each change of a state.
    """

    def __init__(
        self,
        host: MachineHost,
        clock: Clock,
        *,
        account: Account | None = None,
        delays: Delays | None = None,
        moto: MotoProcess | None = None,
        signer: IdentitySigner | None = None,
        port: int = 0,
    ) -> None:
        where = account or Account()
        self.account = where.id
        self.region = where.region
        self.delays = delays or Delays()
        self.faults = Faults(clock.now)
        self.throttling = Throttling(clock.now)
        self.instances = Instances()
        self.quotas = Quotas(self.instances)
        self.placement_groups = PlacementGroups(self.instances)
        self.reservations = Reservations(self.instances, self.account, clock.now)
        self.prices = PriceList(self.region, clock.now)
        self.volumes = Volumes(self.instances)
        self.images = Images(self.account, clock.now)
        self.templates = LaunchTemplates(self.account, clock.now, self.faults)
        self.events = EventQueue(clock.now, self.account, self.region)
        self.instances.on_move = lambda one: self.events.state_changed(one.id, one.state.value)
        self._clock = clock
        self._lifecycle = Lifecycle(self.instances, host, clock, self.faults, self.delays)
        self._shared_moto = moto
        self._signer = signer
        self._port = port
        self._parts: _Running | None = None
        self._closing = AsyncExitStack()

    async def start(self) -> None:
        """Start moto (takes seconds, unless it is shared), create a certificate, and listen."""
        async with AsyncExitStack() as stack:
            moto = self._shared_moto
            if moto is None:
                moto = MotoProcess()
                stack.push_async_callback(asyncio.to_thread, moto.close)
                await asyncio.to_thread(moto.start)
            signer = self._signer
            if signer is None:
                signer = await asyncio.to_thread(IdentitySigner.generate)
            client = MotoClient(moto.url, self.account, self.region)
            stack.push_async_callback(client.close)
            stack.push_async_callback(self._lifecycle.close)
            front = self._front(client)
            metadata = MetadataService(self.instances, signer, self.account, self.region)
            stack.push_async_callback(front.close)
            await front.start(metadata.routes(), self._port)
            self._lifecycle.metadata_root = front.url
            self._parts = _Running(front, client, signer, metadata)
            self._closing = stack.pop_all()

    def _front(self, client: MotoClient) -> Front:
        subnets = Subnets(client, self.instances, self.faults.addresses)
        launcher = Launcher(
            instances=self.instances,
            lifecycle=self._lifecycle,
            faults=self.faults,
            images=self.images,
            templates=self.templates,
            subnets=subnets,
            sales=Sales(self.region, self.faults),
            placement_groups=self.placement_groups,
            reservations=self.reservations,
            quotas=self.quotas,
            throttling=self.throttling,
            now=self._clock.now,
        )
        listing = InstanceList(self.instances, self._lifecycle, self.account)
        answerers = Answerers(
            actions=Actions(launcher, listing, self.volumes, self.prices),
            quotas=ServiceQuotas(self.quotas, self.account, self.region),
            prices=self.prices,
            events=self.events,
            subnets=subnets,
            moto=client,
            faults=self.faults,
            throttling=self.throttling,
            sleep=self._clock.sleep,
            now=self._clock.now,
        )
        return Front(answerers, self.region)

    async def close(self) -> None:
        """Stop serving, and stop moto if this object started it. Close the host afterwards. Idempotent."""
        await self._closing.aclose()

    @property
    def endpoint_url(self) -> str:
        """The URL for AWS_ENDPOINT_URL. The server accepts all credentials."""
        return self._running.front.url

    @property
    def certificate_pem(self) -> bytes:
        """The certificate that verifies identity documents."""
        return self._running.signer.certificate_pem

    @property
    def signer(self) -> IdentitySigner:
        """The signer of identity documents, for tests that forge them."""
        return self._running.signer

    @property
    def calls(self) -> Counter[str]:
        """The number of calls by EC2 action, or by the name of another service, such as `sts`."""
        return self._running.front.calls

    @property
    def errors(self) -> Counter[tuple[str, str]]:
        """The number of calls that the front answered with an error, by action and code."""
        return self._running.front.errors

    def record(self, recorder: RequestRecorder) -> None:
        """Have every further request to AWS recorded, before it is answered."""
        self._running.front.recorder = recorder

    @property
    def sendings(self) -> Mapping[str, list[str]]:
        """The SHA-256 of each request with a client token, by token, in the order of arrival."""
        return self._running.front.sendings

    @property
    def first_sent(self) -> Mapping[str, float]:
        """Return when the first request with this client token arrived, in lab time."""
        return self._running.front.first_sent

    @property
    def metadata_requests(self) -> int:
        """The number of requests to the metadata service by all instances."""
        return self._running.metadata.requests

    async def seed_network(self, zones: int = 3, seed: int | None = None) -> Network:
        """Create a VPC with a subnet in each of this number of zones, and a security group.

        With a `seed` their IDs are the same each time, if nothing was created before.
        """
        return await seed_network(self._running.client, self.region, zones, seed)

    def metadata_url(self, instance_id: str) -> str:
        """Return the URL of an instance's metadata service, without `/latest`."""
        return f"{self._running.front.url}/{instance_id}"

    def document(self, instance_id: str, **changes: str) -> bytes:
        """Return an instance's identity document with some fields changed, without a signature.

        Raises KeyError for an unknown instance.
        """
        one = self.instances.find(instance_id)
        if one is None:
            raise KeyError(instance_id)
        return render_document(self._running.metadata.fields(one) | changes)

    @property
    def queue_url(self) -> str:
        """The URL of the SQS queue with EventBridge's events."""
        return f"{self._running.front.url}/{self.account}/{event_queue.NAME}"

    def interrupt(self, instance_id: str, notice: bool = True, properly: bool = True) -> None:
        """Interrupt a spot instance at once. With `notice`, send the warning event before.

        `properly` shuts its operating system down first; otherwise its processes are killed. Raises KeyError
        for an unknown instance.
        """
        one = self.instances.find(instance_id)
        if one is None:
            raise KeyError(instance_id)
        if notice:
            self.events.spot_interruption(instance_id)
        self._lifecycle.take_back(one, properly)

    def machines_left(self) -> tuple[Instance, ...]:
        """Return every instance that is not terminated."""
        return tuple(one for one in self.instances if one.state is not InstanceState.TERMINATED)

    def machine_hours(self) -> float:
        """Return the lab hours that all instances have spent in `running` up to now."""
        now = self._clock.now()
        return sum(one.billed_seconds(now) for one in self.instances) / 3600

    @property
    def _running(self) -> _Running:
        if self._parts is None:
            raise RuntimeError("the lab's EC2 is not started")
        return self._parts
