"""Checks the invariants of a world, and records violations. Reads the world, not the ledger.

Reads the store only to check that requests were stored before they were sent.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autoscaler.model.catalogue import Catalogue, Offering
from autoscaler.model.identifiers import Instant, RunnerName, Seconds, SkuName
from autoscaler.model.labels import covers
from autoscaler.model.launch_requests import LaunchRequest
from autoscaler.model.machines import Machine, TerminationReason
from autoscaler.simulator.world.instances import POWERED_OFF, STRANGER, Instance, Seat
from autoscaler.simulator.world.jobs import SimulatedJob
from autoscaler.simulator.world.store import MemoryStore

SERVED_WITHIN: Seconds = 2000.0
"""A job may not be queued for this long while a ready machine with its labels exists.

The longest hold of a registration, after half an hour of refusals, is 32 minutes.
"""

NO_HOLD_LEFT: Seconds = 3700.0
"""This long after the last fault nothing is on hold any more: the longest hold is an hour, of a quota."""

LAUNCHED_WITHIN: Seconds = 300.0
"""A queued job beside room for a machine, for so long and with none on its way, is starvation: after
bad machines one probe goes first, and has to come up or even to get a job."""

_ROUNDING = 1e-6


class Invariants:
    """`violations` in the order they happened; `time` is seconds since the world began."""

    def __init__(self, catalogue: Catalogue, store: MemoryStore) -> None:
        self.violations: list[str] = []
        self.seats: list[Seat] = []
        self.launches = 0
        self._catalogue = catalogue
        self._store = store
        self._offerings = {
            offering.key: offering
            for sku in catalogue.skus.values()
            for option in sku.launch_options
            for offering in option.offerings
        }
        self._running: set[Instance] = set()
        self._requests: dict[str, str] = {}
        self._tokens: dict[str, str] = {}
        self._asked: dict[str, int] = {}
        self._filled: Counter[str] = Counter()
        self._served: set[str] = set()
        self._handed: dict[str, Seat] = {}
        self._unserved: dict[SimulatedJob, Instant] = {}

    def note(self, violation: str) -> None:
        """Record a violation, each text once."""
        if violation not in self.violations:
            self.violations.append(violation)

    def began(self, instance: Instance) -> None:
        """Record that a machine was launched."""
        self._running.add(instance)
        self.launches += 1
        if instance.slot:
            self._begin_slot(instance)
            return
        self._filled[instance.call] += 1
        if self._filled[instance.call] > self._asked.get(
            instance.call, self._filled[instance.call]
        ):
            self.note(f"a slot filled twice: call {instance.call} has a machine too many")

    def ended(self, instance: Instance) -> None:
        """Record that a machine ended."""
        self._running.discard(instance)
        if instance.slot and instance.reason == POWERED_OFF:
            self._served.add(instance.slot)

    def _begin_slot(self, instance: Instance) -> None:
        """Check that a slot has one pod. After its pod ended by itself, it has none any more."""
        others = [one for one in self._running if one.slot == instance.slot and one is not instance]
        if others or instance.slot in self._served:
            self.note(f"a slot filled twice: there is another pod {instance.slot}")

    def launching(self, request: str, order: Mapping[str, Any], new: int) -> None:
        """Check a launch request that arrives at a provider. `order` is its content.

        `new` is the number of machines that it would launch: a repeated request launches no more.
        """
        call = self._store.records.get(("launch_request", order["call"]))
        if not isinstance(call, LaunchRequest) or call.body != request:
            self.note(f"call {order['call']} was sent before it was stored")
        elif order["count"] > len(call.slots):
            self.note(f"call {call.id} asks for more machines than it has slots")
        self._asked.setdefault(order["call"], order["count"])
        if self._requests.setdefault(order["token"], request) != request:
            self.note(f"token {order['token']} came with another request")
        if self._tokens.setdefault(order["call"], order["token"]) != order["token"]:
            self.note(f"a slot filled twice: call {order['call']} has another token")
        if new:
            self._check_caps(order["sku"], order["offerings"], new)

    def creating(self, name: str) -> None:
        """Check a request to create a pod: its name is part of a stored request that was sent."""
        requests = self._store.of_kind(LaunchRequest)
        if not any(one.body and f'"{name}"' in one.body for one in requests):
            self.note(f"pod {name} was created before its launch request was stored")

    def ending(self, instance: Instance) -> None:
        """Check a request to terminate a running machine."""
        if not self._ours(instance):
            self.note(f"{instance.id} of another installation was terminated")
        for seat in self.seats:
            if seat.instance is not instance:
                continue
            if seat.works:
                self.note(f"{instance.id} was stopped at work")
            elif seat.listens and not self._released(seat):
                self.note(f"{instance.id} was stopped while its runner listened")

    def _released(self, seat: Seat) -> bool:
        """Return whether an operator had the machine terminated after its runner's only job."""
        registration = seat.registration
        return (registration is not None and registration.spent) and any(
            machine.placement.provider_id == seat.instance.id
            and machine.termination.reason is TerminationReason.OPERATOR
            for machine in self._store.of_kind(Machine)
        )

    def _ours(self, instance: Instance) -> bool:
        """Return whether the machine is this fleet's: by its installation ID, or by a record in the store.

        Machines from before an adoption have only a record.
        """
        if instance.installation in (STRANGER, self._store.installations.own):
            return instance.installation != STRANGER
        return any(
            machine.placement.provider_id == instance.id for machine in self._store.of_kind(Machine)
        )

    def _check_caps(self, sku: SkuName, keys: Sequence[str], count: int) -> None:
        offerings = [self._offerings[key] for key in keys]
        for broken in self._broken(sku, offerings, count):
            self.note(broken)

    def _broken(self, sku: SkuName, offerings: list[Offering], count: int) -> Iterator[str]:
        """Yield the limits that `count` more machines of a SKU would exceed."""
        limits = self._catalogue.limits
        most = self._catalogue.skus[sku].max_machines
        there = sum(instance.sku == sku for instance in self._running)
        if most is not None and there + count > most:
            yield f"cap of {sku} broken: {there} + {count} of {most}"
        if limits.machines is not None and len(self._running) + count > limits.machines:
            yield f"cap of machines broken: {len(self._running)} + {count}"
        dollars = sum(i.offering.dollars_per_hour for i in self._running)
        dollars += count * max(offering.dollars_per_hour for offering in offerings)
        if limits.dollars_per_hour is not None and dollars > limits.dollars_per_hour + _ROUNDING:
            yield f"cap of dollars broken: {dollars:g}"
        used: Counter[str] = Counter()
        for instance in self._running:
            used[instance.offering.quota_key] += instance.offering.quota_units
        for offering in offerings:
            quota = limits.quotas.get(offering.quota_key)
            units = used[offering.quota_key] + count * offering.quota_units
            if quota is not None and units > quota:
                yield f"quota {offering.quota_key} broken: {units} of {quota}"

    def registering(self, name: RunnerName) -> None:
        """Check a request to register a runner."""
        if ("runner", name) not in self._store.records:
            self.note(f"{name} was registered before it was stored")
        for seat in self.seats:
            if seat.machine and f"-{seat.machine}-" in name:
                if not seat.health_checks_passed:
                    self.note(f"{name} was registered before its machine passed its health checks")
                if seat.listens:
                    self.note(f"{name} was registered for a machine whose runner listens")

    def assigned(self, seat: Seat, config: str) -> None:
        """Check that a JIT configuration reaches one machine, after its health checks."""
        if self._handed.setdefault(config, seat) is not seat:
            self.note(f"one configuration reached two machines: {seat.instance.id}")
        if not seat.health_checks_passed:
            self.note(f"{seat.instance.id} was assigned before its health checks")

    def running_again(self, job: SimulatedJob) -> None:
        """Check a request to re-run a job."""
        if not job.killed:
            self.note(f"job {job.id} was run again, and no machine was taken from it")

    def look(self, queued: list[SimulatedJob], now: Instant, calm: Seconds) -> None:
        """Check for jobs that starve. No fault was active for `calm` seconds."""
        if calm > SERVED_WITHIN:
            self._look_beside_ready(queued, now)
        self._unserved = {
            job: self._unserved.get(job, now)
            for job in (self._without_machine(queued) if calm > NO_HOLD_LEFT else ())
        }
        for job, since in self._unserved.items():
            if now - since > LAUNCHED_WITHIN:
                self.note(f"job {job.id} starves: there is room, and no machine is on its way")

    def _look_beside_ready(self, queued: list[SimulatedJob], now: Instant) -> None:
        ready = [
            self._catalogue.skus[seat.instance.sku].offered_labels
            for seat in self.seats
            if seat.ready_since is not None
            and seat.instance.ended_at is None
            and now - seat.ready_since > SERVED_WITHIN
        ]
        for job in queued:
            waited = now - max(job.queued_at, job.words[-1][0])
            if waited > SERVED_WITHIN and any(covers(offered, job.labels) for offered in ready):
                self.note(f"job {job.id} starves beside a ready machine")

    def _without_machine(self, queued: list[SimulatedJob]) -> Iterator[SimulatedJob]:
        """Yield, of each SKU with headroom, the newest jobs for which there is no machine without a job."""
        for name, sku in self._catalogue.skus.items():
            waiting = [job for job in queued if covers(sku.offered_labels, job.labels)]
            offerings = [offering for option in sku.launch_options for offering in option.offerings]
            if waiting and any(not [*self._broken(name, [one], 1)] for one in offerings):
                coming = sum(
                    seat.instance.sku == name and seat.instance.ended_at is None and not seat.works
                    for seat in self.seats
                )
                yield from sorted(waiting, key=lambda job: (job.queued_at, job.id))[coming:]
