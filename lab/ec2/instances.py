"""The lab's instances, the times of their states, and counts over all of them.

`lifecycle` changes their states.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from autoscaler.model.catalogue import CapacityType
from lab.ec2.disks import Disk
from lab.ec2.images import Image
from lab.ec2.interfaces import Interface, addresses


class InstanceState(StrEnum):
    """EC2's names of the states. `code` is EC2's number of a state."""

    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"
    STOPPING = "stopping"
    STOPPED = "stopped"

    @property
    def code(self) -> int:
        """EC2's number of this state."""
        return STATE_CODES[self]


STATE_CODES = {
    InstanceState.PENDING: 0,
    InstanceState.RUNNING: 16,
    InstanceState.SHUTTING_DOWN: 32,
    InstanceState.TERMINATED: 48,
    InstanceState.STOPPING: 64,
    InstanceState.STOPPED: 80,
}
IN_USE = frozenset({InstanceState.PENDING, InstanceState.RUNNING})
TAKING_CAPACITY = IN_USE | {InstanceState.SHUTTING_DOWN, InstanceState.STOPPING}


class Pool(NamedTuple):
    """Instance type, zone and capacity type: the unit in which capacity is counted."""

    instance_type: str
    zone: str
    capacity_type: CapacityType


@dataclass(frozen=True, slots=True)
class Subnet:
    """A subnet as moto has it. `addresses` is the size of its CIDR block, less the five that EC2 reserves.

    `public` is whether its machines get a public address, unless their launch says otherwise.
    """

    id: str
    zone: str
    vpc: str
    addresses: int
    public: bool = False


@dataclass(frozen=True, slots=True)
class LaunchSpecification:
    """What to launch: the merged data of template, override and request.

    `user_data` is base64, as EC2 stores it. `tags` and `volume_tags` are those at launch. `disk` is the root
    volume. `reservation` is the capacity reservation that the launch named.
    """

    image: Image
    instance_type: str
    subnet: Subnet
    user_data: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    volume_tags: dict[str, str] = field(default_factory=dict)
    security_groups: tuple[str, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    placement_group: str = ""
    reservation: str = ""
    instance_profile: str = ""
    metadata_options: dict[str, str] = field(default_factory=dict)
    shutdown_behavior: str = "stop"
    disk: Disk = field(default_factory=Disk)
    key_name: str = ""
    ebs_optimized: bool = False


@dataclass(slots=True, eq=False)
class Instance:
    """One instance. Times are Unix seconds of lab time. Only `lifecycle` and tagging change it.

    `tags` is replaced, never changed in place. `running_at` is None if the instance never ran. `ended_at` is
    when it began to end, and billing stops. Before `visible_at` only the call that created it shows it.
    `leaves_disk` is whether its root volume remains after its end.
    """

    id: str
    number: int
    reservation: str
    specification: LaunchSpecification
    capacity_type: CapacityType
    tags: dict[str, str]
    client_token: str
    launched_at: float
    volume_id: str
    private_ip: str
    public_ip: str = ""
    state: InstanceState = InstanceState.PENDING
    running_at: float | None = None
    ended_at: float | None = None
    terminated_at: float | None = None
    reason: tuple[str, str] | None = None
    transition: str = ""
    visible_at: float = 0.0
    pending_late: float = 0.0
    leaves_disk: bool = False

    @property
    def instance_type(self) -> str:
        """The type, such as g5.4xlarge."""
        return self.specification.instance_type

    @property
    def zone(self) -> str:
        """The zone, such as us-east-1a."""
        return self.specification.subnet.zone

    @property
    def pool(self) -> Pool:
        """The pool whose capacity it uses."""
        return Pool(self.instance_type, self.zone, self.capacity_type)

    def billed_seconds(self, now: float) -> float:
        """Return the lab seconds in `running` up to `now`, without EC2's minimum of 60 s."""
        if self.running_at is None:
            return 0.0
        return (now if self.ended_at is None else self.ended_at) - self.running_at


class Instances:
    """All instances, also terminated ones, in launch order."""

    def __init__(self) -> None:
        self._by_id: dict[str, Instance] = {}
        self._taken: Counter[Pool] = Counter()
        self._in_use: Counter[Pool] = Counter()
        self._addresses: Counter[str] = Counter()
        self._alive = 0
        self.peak = 0
        self.on_move: Callable[[Instance], None] = lambda _: None

    def __iter__(self) -> Iterator[Instance]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def alive(self) -> int:
        """The number of instances that are not terminated."""
        return self._alive

    def taken(self, pool: Pool) -> int:
        """Return the number of instances that use capacity of this pool now, and of no reservation."""
        return self._taken[pool]

    def in_use(self) -> Iterator[tuple[Pool, int]]:
        """Return the number of pending and running instances by pool."""
        return ((pool, machines) for pool, machines in self._in_use.items() if machines)

    def addresses_taken(self, subnet: str) -> int:
        """Return the number of used addresses of a subnet: those of each living instance."""
        return self._addresses[subnet]

    def find(self, instance_id: str) -> Instance | None:
        """Return the instance with this id, also a terminated one, or None."""
        return self._by_id.get(instance_id)

    def add(self, instance: Instance) -> None:
        """Add a new instance in `pending`."""
        self._by_id[instance.id] = instance
        self._taken[instance.pool] += not instance.specification.reservation
        self._in_use[instance.pool] += 1
        self._addresses[instance.specification.subnet.id] += _addresses_of(instance)
        self._alive += 1
        self.peak = max(self.peak, self._alive)

    def move(self, instance: Instance, state: InstanceState) -> None:
        """Set an instance's state and update the counts."""
        before = instance.state
        if not instance.specification.reservation:
            taking = (state in TAKING_CAPACITY) - (before in TAKING_CAPACITY)
            self._taken[instance.pool] += taking
        self._in_use[instance.pool] += (state in IN_USE) - (before in IN_USE)
        ended = InstanceState.TERMINATED
        lives = (before is ended) - (state is ended)
        self._addresses[instance.specification.subnet.id] += lives * _addresses_of(instance)
        self._alive += lives
        instance.state = state
        self.on_move(instance)


def _addresses_of(instance: Instance) -> int:
    return addresses(instance.specification.interfaces)
