"""A small fleet for the fuzzer of the bootstrap protocol: the real service, real proofs, simulated time.

It records which machine proved what without asking the code under test.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from operator import attrgetter

from autoscaler.controller.machines.bootstrap import BootstrapService
from autoscaler.controller.ports.provider import ProvenIdentity
from autoscaler.model.identifiers import MachineId, ProviderMachineId, RunnerName
from autoscaler.model.jobs.runners import Runner
from autoscaler.model.machines.machine import Machine
from autoscaler.providers.ec2.identity.documents import IdentityVerifier
from autoscaler.server.machines.bootstrap import BootstrapEndpoint
from tests.controller.agents import queue
from tests.controller.controllers import Controller, World
from tests.controller.fakes_provider import FakeProvider
from tests.fuzz import documents
from tests.fuzz.bootstrap_requests import MACHINES
from tests.planner.fleets import EAST, catalogue, sku
from tests.providers.documents import ACCOUNT, REGION
from tests.server.doubles import CountingTelemetry

# `dataclasses.replace` would take a quarter of the fuzzer's time.
_values_of_machine = attrgetter(*(field.name for field in fields(Machine)))
_values_of_runner = attrgetter(*(field.name for field in fields(Runner)))

Service = type[BootstrapService]
Verify = Callable[[bytes, str], ProvenIdentity]

real_verify: Verify = IdentityVerifier(REGION, documents.PINNED).verify


@dataclass(frozen=True, slots=True)
class Parts:
    """The code under test. Tests of the fuzzer replace it by code with a hole."""

    service: Service = BootstrapService
    verify: Verify = real_verify


class ProvingProvider(FakeProvider):
    """The machines' documents are signed and read like EC2's."""

    def __init__(self, verify: Verify) -> None:
        super().__init__()
        self._verify = verify

    async def verify(self, proof: bytes) -> ProvenIdentity:
        proven = self._verify(proof, ACCOUNT)
        number = int(proven.provider_id.removeprefix("i-"), 16)
        return replace(
            proven,
            provider_id=ProviderMachineId(f"i-{EAST}-{number}"),
            launch_time=f"t{datetime.fromisoformat(proven.launch_time).timestamp():.0f}",
        )


@dataclass
class Books:
    """The fuzzer's knowledge: all nonces and their machines, the machines that may end, the secrets that
    were sent, and the machines that acknowledged one."""

    nonces: dict[MachineId, str] = field(default_factory=dict)
    may_end: set[MachineId] = field(default_factory=set)
    secrets: set[str] = field(default_factory=set)
    acknowledged: set[MachineId] = field(default_factory=set)
    ever: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Earlier values of every record, and the machines that were assigned before."""

    machines: dict[MachineId, tuple[object, ...]]
    runners: dict[RunnerName, tuple[object, ...]]
    may_run_job: frozenset[MachineId]


class Fleet:
    """Newly launched machines, and the endpoint that they call."""

    def __init__(self, parts: Parts) -> None:
        self.provider = ProvingProvider(parts.verify)
        world = World(
            catalogue=catalogue(sku(max_machines=2 * MACHINES)), providers={EAST: self.provider}
        )
        self.world = world
        self.controller = Controller(world)
        self.service = parts.service(
            self.controller.journal,
            self.controller.registrar,
            self.controller.releaser,
            world.providers,
            {},
            self.controller.machine_lists.list_now,
            world.providers,
        )
        self.endpoint = BootstrapEndpoint(self.service, b"", CountingTelemetry())
        self.books = Books()
        self.machines: list[MachineId] = []

    async def launch(self) -> None:
        """A machine for each of some queued jobs."""
        await self.controller.resume()
        for job in range(1, MACHINES + 1):
            await queue(self.controller, job)
        await self.controller.turn()
        self.machines = [self.machine_of(n) for n in range(1, MACHINES + 1)]

    def machine_of(self, number: int) -> MachineId:
        """The record of the provider's n-th machine."""
        of = self.controller.state.by_provider_id
        return of[ProviderMachineId(f"i-{EAST}-{number}")]

    def snapshot(self) -> Snapshot:
        """Return the values of all machine and runner records now."""
        state = self.controller.state
        return Snapshot(
            {key: _values_of_machine(machine) for key, machine in state.machines.items()},
            {key: _values_of_runner(runner) for key, runner in state.runners.items()},
            frozenset(key for key, machine in state.machines.items() if machine.work.may_run_job),
        )
