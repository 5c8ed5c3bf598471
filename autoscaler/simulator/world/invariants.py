"""Checks the invariants of a world, and records violations. Reads the world, not the ledger.

Reads the store only to check that requests were stored before they were sent, and that the records of machines
agree with the world.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from autoscaler.model.catalogue import Catalogue, Offering
from autoscaler.model.changes import Record
from autoscaler.model.identifiers import Instant, RunnerName, Seconds, SkuName
from autoscaler.model.jobs.labels import covers
from autoscaler.model.machines.launch_requests import LaunchRequest
from autoscaler.model.machines.machine import (
    BOOTING_STATES,
    Machine,
    MachineState,
    TerminationReason,
)
from autoscaler.simulator.world.controller.store import MemoryStore
from autoscaler.simulator.world.instances import (
    POWERED_OFF,
    STRANGER,
    Instance,
    MachineActivity,
)
from autoscaler.simulator.world.jobs import SimulatedJob

SERVED_WITHIN: Seconds = 2000.0
"""A job may not be queued for this long while a ready machine with its labels exists.

The longest hold of a registration, after half an hour of refusals, is 32 minutes.
"""

NO_HOLD_LEFT: Seconds = 3700.0
"""Seconds after the last fault after which nothing is on hold any more. A quota is on hold for an hour."""

LAUNCHED_WITHIN: Seconds = 300.0
"""A job may not be queued for this long while the limits allow a machine and none is being launched. After bad
machines, the controller launches one probe, and waits until the probe is ready or even gets a job."""

_ROUNDING = 1e-6
_ENDED = (MachineState.TERMINATED, MachineState.LOST)


class Invariants:
    """`violations` in the order they happened; `time` is seconds since the world began."""

    def __init__(self, catalogue: Catalogue, store: MemoryStore) -> None:
        self.violations: list[str] = []
        self.activities: list[MachineActivity] = []
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
        self._handed: dict[str, MachineActivity] = {}
        self._unserved: dict[SimulatedJob, Instant] = {}
        self.aged_by_clock: Callable[[Instance], bool] = lambda _: False
        """Returns whether the controller's clock jumped in the last minute, and after a launch.

        A list that is out of date does not show the machine, and the clock says that it was launched long ago.
        It is recorded as lost, and terminated when the next list shows it.
        """
        self.hidden: Callable[[Instance], bool] = lambda _: False
        """Returns whether the store was restored or lost after a launch, and no list showed the machine since.

        A limit does not count it if the store does not know it, because the controller cannot.
        """

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
        self._filled[instance.launch_request] += 1
        if self._filled[instance.launch_request] > self._asked.get(
            instance.launch_request, self._filled[instance.launch_request]
        ):
            self.note(
                f"a slot filled twice: launch request {instance.launch_request} has a machine too many"
            )

    def ended(self, instance: Instance) -> None:
        """Record that a machine ended."""
        self._running.discard(instance)
        if instance.slot and instance.reason == POWERED_OFF:
            self._served.add(instance.slot)

    def rewound(self) -> None:
        """Forget which pods ended. A restored store does not know it, and its requests may be repeated."""
        self._served.clear()

    def _begin_slot(self, instance: Instance) -> None:
        """Check that a slot has one pod at a time, and none after a pod of it ended by itself."""
        others = [one for one in self._running if one.slot == instance.slot and one is not instance]
        if others or instance.slot in self._served:
            self.note(f"a slot filled twice: there is another pod {instance.slot}")

    def launching(self, request: str, order: Mapping[str, Any], new: int) -> None:
        """Check a launch request that arrives at a provider. `order` is its content.

        `new` is the number of machines that it would launch: a repeated request launches no more.
        """
        recorded = self._store.records.get(("launch_request", order["launch_request"]))
        if not isinstance(recorded, LaunchRequest) or recorded.body != request:
            self.note(f"launch request {order['launch_request']} was sent before it was stored")
        elif order["count"] > len(recorded.slots):
            self.note(f"launch request {recorded.id} asks for more machines than it has slots")
        self._asked.setdefault(order["launch_request"], order["count"])
        if self._requests.setdefault(order["token"], request) != request:
            self.note(f"token {order['token']} came with another request")
        if self._tokens.setdefault(order["launch_request"], order["token"]) != order["token"]:
            self.note(
                f"a slot filled twice: launch request {order['launch_request']} has another token"
            )
        if new:
            self._check_caps(order["sku"], order["offerings"], new)

    def creating(self, name: str) -> None:
        """Check a request to create a pod: its name is part of a stored request that was sent."""
        requests = self._store.of_kind(LaunchRequest)
        if not any(one.body and f'"{name}"' in one.body for one in requests):
            self.note(f"pod {name} was created before its launch request was stored")

    def recorded(self, records: Iterable[Record]) -> None:
        """Check records that were stored: no machine that runs is recorded as terminated or lost."""
        ended = {
            record.placement.provider_id
            for record in records
            if isinstance(record, Machine) and record.state in _ENDED
        }
        running = [one for one in self._running if one.id in ended] if ended else []
        for machine in sorted(one.id for one in running if not self.aged_by_clock(one)):
            self.note(f"{machine} runs, and was recorded as ended")

    def shown_as_ended(self, instance: Instance) -> None:
        """Check a machine that a complete list showed as ended a moment ago."""
        record = self._record_of(instance)
        if record is not None and record.occupies:
            self.note(f"{instance.id} has ended, was listed, and still counts as {record.state}")

    def shown_as_waiting(self, instance: Instance) -> None:
        """Check a machine that a complete list showed, a moment ago, as waiting for a node for too long."""
        record = self._record_of(instance)
        if record is not None and record.state in BOOTING_STATES:
            self.note(f"{instance.id} waits for a node for too long")

    def _record_of(self, instance: Instance) -> Machine | None:
        machines = self._store.of_kind(Machine)
        return next((one for one in machines if one.placement.provider_id == instance.id), None)

    def terminating(self, instance: Instance) -> None:
        """Check a request to terminate a running machine."""
        if not self._is_ours(instance):
            self.note(f"{instance.id} of another installation was terminated")
        for activity in self.activities:
            if activity.instance is not instance:
                continue
            if activity.works:
                self.note(f"{instance.id} was stopped at work")
            elif activity.listens and not self._released(activity):
                self.note(f"{instance.id} was stopped while its runner listened")

    def _released(self, activity: MachineActivity) -> bool:
        """Return whether an operator had the machine terminated after its runner's only job."""
        registration = activity.registration
        return (registration is not None and registration.spent) and any(
            machine.placement.provider_id == activity.instance.id
            and machine.termination.reason is TerminationReason.OPERATOR
            for machine in self._store.of_kind(Machine)
        )

    def _is_ours(self, instance: Instance) -> bool:
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
        for broken in self._exceeded(sku, offerings, count):
            self.note(broken)

    def _exceeded(self, sku: SkuName, offerings: list[Offering], count: int) -> Iterator[str]:
        """Yield the limits that `count` more machines of a SKU would exceed."""
        limits = self._catalogue.limits
        most = self._catalogue.skus[sku].max_machines
        running = self._countable()
        there = sum(instance.sku == sku for instance in running)
        if most is not None and there + count > most:
            yield f"cap of {sku} broken: {there} + {count} of {most}"
        if limits.machines is not None and len(running) + count > limits.machines:
            yield f"cap of machines broken: {len(running)} + {count}"
        dollars = sum(i.offering.dollars_per_hour for i in running)
        dollars += count * max(offering.dollars_per_hour for offering in offerings)
        if limits.dollars_per_hour is not None and dollars > limits.dollars_per_hour + _ROUNDING:
            yield f"cap of dollars broken: {dollars:g}"
        used: Counter[str] = Counter()
        for instance in running:
            used[instance.offering.quota_key] += instance.offering.quota_units
        for offering in offerings:
            quota = limits.quotas.get(offering.quota_key)
            units = used[offering.quota_key] + count * offering.quota_units
            if quota is not None and units > quota:
                yield f"quota {offering.quota_key} broken: {units} of {quota}"

    def _countable(self) -> Collection[Instance]:
        """Return the running machines that a controller can count."""
        hidden = {one.id for one in self._running if self.hidden(one)}
        if not hidden:
            return self._running
        hidden -= {machine.placement.provider_id for machine in self._store.of_kind(Machine)}
        return [one for one in self._running if one.id not in hidden]

    def registering(self, name: RunnerName) -> None:
        """Check a request to register a runner."""
        if ("runner", name) not in self._store.records:
            self.note(f"{name} was registered before it was stored")
        for activity in self.activities:
            if activity.machine and f"-{activity.machine}-" in name:
                if not activity.health_checks_passed:
                    self.note(f"{name} was registered before its machine passed its health checks")
                if activity.listens:
                    self.note(f"{name} was registered for a machine whose runner listens")

    def assigned(self, activity: MachineActivity, config: str) -> None:
        """Check that a JIT configuration reaches one machine, after its health checks."""
        if self._handed.setdefault(config, activity) is not activity:
            self.note(f"one configuration reached two machines: {activity.instance.id}")
        if not activity.health_checks_passed:
            self.note(f"{activity.instance.id} was assigned before its health checks")

    def running_again(self, job: SimulatedJob) -> None:
        """Check a request to re-run a job."""
        if not job.killed:
            self.note(f"job {job.id} was run again, and no machine was taken from it")

    def check(self, queued: list[SimulatedJob], now: Instant, calm: Seconds) -> None:
        """Check for jobs that starve. No fault has been active for `calm` seconds."""
        if calm > SERVED_WITHIN:
            self._check_beside_ready(queued, now)
        self._unserved = {
            job: self._unserved.get(job, now)
            for job in (self._without_machine(queued) if calm > NO_HOLD_LEFT else ())
        }
        for job, since in self._unserved.items():
            if now - since > LAUNCHED_WITHIN:
                self.note(f"job {job.id} starves: there is room, and no machine is on its way")

    def _check_beside_ready(self, queued: list[SimulatedJob], now: Instant) -> None:
        ready = [
            self._catalogue.skus[activity.instance.sku].offered_labels
            for activity in self.activities
            if activity.ready_since is not None
            and activity.instance.ended_at is None
            and now - activity.ready_since > SERVED_WITHIN
        ]
        for job in queued:
            waited = now - max(job.queued_at, job.snapshots[-1][0])
            if waited > SERVED_WITHIN and any(covers(offered, job.labels) for offered in ready):
                self.note(f"job {job.id} starves beside a ready machine")

    def _without_machine(self, queued: list[SimulatedJob]) -> Iterator[SimulatedJob]:
        """Yield the jobs of SKUs with headroom that get no machine if the oldest jobs get the first ones."""
        for name, sku in self._catalogue.skus.items():
            waiting = [job for job in queued if covers(sku.offered_labels, job.labels)]
            offerings = [offering for option in sku.launch_options for offering in option.offerings]
            if waiting and any(not [*self._exceeded(name, [one], 1)] for one in offerings):
                coming = sum(
                    activity.instance.sku == name
                    and activity.instance.ended_at is None
                    and not activity.works
                    for activity in self.activities
                )
                yield from sorted(waiting, key=lambda job: (job.queued_at, job.id))[coming:]
