"""Circuit breakers of SKUs and launch options: after repeated failures, launch one probe at a time.

A SKU's breaker opens

- after consecutive machines that did not become ready, and closes when one becomes ready;
- after consecutive runners that exited at once without a job, or a runner whose version GitHub refuses,
  and closes when a runner gets a job.

A launch option's breaker opens after consecutive failures of its own launch requests or machines, and closes
when one of its machines becomes ready. An open breaker does not affect machines that were launched before.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from autoscaler.model.cooldowns import (
    Cooldown,
    active_cooldown,
    boots_key,
    exits_key,
    launch_option_key,
    open_circuit,
)
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant, MachineId, SkuName
from autoscaler.model.jobs.runners import IDLE_STATES, RunnerState
from autoscaler.model.machines.machine import Machine, MachineState
from autoscaler.model.reasons.table import WaitCode
from autoscaler.model.reasons.waiting import WaitReason


@dataclass(slots=True)
class CircuitBreakers:
    """The open circuit breakers, and the probes under way, while a plan is being made.

    `leaving` are machines that this plan no longer counts as supply. None of them is a probe.
    `late` are those of them that miss the deadline of their boot or health checks.
    """

    fleet: Fleet
    leaving: Collection[MachineId]
    late: Collection[MachineId] = ()
    placed: Counter[tuple[SkuName, int]] = field(default_factory=Counter)
    _half_open: dict[tuple[SkuName, int], bool] = field(default_factory=dict, init=False)

    def sku_blocked(self, sku: SkuName) -> WaitReason | None:
        """Return the reason no machine of a SKU may be launched now, or None if one may."""
        cooldowns = self.fleet.cooldowns
        if (row := open_circuit(cooldowns, exits_key(sku))) is not None:
            variant = "image" if row.image else "exits"
            if active_cooldown(cooldowns, exits_key(sku), self.fleet.now) is not None:
                return _open(row, sku, variant, until=row.until)
            if self._booting_of_sku(sku) + self._without_job(sku) > 0:
                return _open(row, sku, variant)
        row = open_circuit(cooldowns, boots_key(sku))
        if row is not None and self._booting_of_sku(sku) > 0:
            return _open(row, sku, "boots")
        return None

    def option_blocked(self, sku: SkuName, option: int) -> WaitReason | None:
        """Return the reason a launch option is unavailable now, or None if it is available."""
        row = open_circuit(self.fleet.cooldowns, launch_option_key(sku, option))
        if row is None:
            return None
        provider = self.fleet.catalogue.skus[sku].launch_options[option].provider
        if self._booting(sku, option) > 0:
            return _open(row, provider, "option")
        booting = self.fleet.booting.get((sku, option), {})
        # Its termination puts the option on hold.
        failed = any(machine in booting for machine in self.late)
        return _open(row, provider, "option_failed") if failed else None

    def launches_one_at_a_time(self, sku: SkuName, option: int) -> bool:
        """Return whether a machine launched there may block the next launch."""
        found = self._half_open.get((sku, option))
        if found is None:
            keys = (exits_key(sku), boots_key(sku), launch_option_key(sku, option))
            found = any(open_circuit(self.fleet.cooldowns, key) is not None for key in keys)
            self._half_open[sku, option] = found
        return found

    def count(self, sku: SkuName, option: int, machines: int) -> None:
        """Count machines that this plan launches; a negative number for slots that it cancels."""
        self.placed[sku, option] += machines

    def _booting_of_sku(self, sku: SkuName) -> int:
        options = {r for name, r in (*self.fleet.booting, *self.placed) if name == sku}
        return sum(self._booting(sku, option) for option in options)

    def _booting(self, sku: SkuName, option: int) -> int:
        booting = self.fleet.booting.get((sku, option), {})
        leaving = sum(machine in booting for machine in self.leaving)
        return len(booting) - leaving + self.placed[sku, option]

    def _without_job(self, sku: SkuName) -> int:
        """Return the number of machines that are ready, or whose runners have no job yet."""
        fleet = self.fleet
        found = fleet.count(sku, MachineState.READY) + fleet.runners_without_job.get(sku, 0)
        leaving = sum(
            self._is_without_job(fleet.machines[m]) for m in self.leaving if self._is_of(sku, m)
        )
        return found + fleet.deregistering.get(sku, 0) - leaving

    def _is_of(self, sku: SkuName, machine: MachineId) -> bool:
        return self.fleet.machines[machine].sku == sku

    def _is_without_job(self, machine: Machine) -> bool:
        runner = (
            self.fleet.runners.get(machine.work.runner) if machine.work.runner is not None else None
        )
        if runner is None:
            return machine.state is MachineState.READY
        idle = runner.state in IDLE_STATES and not runner.passed_over
        return idle or runner.state is RunnerState.DEREGISTERING


def _open(row: Cooldown, about: str, variant: str, until: Instant | None = None) -> WaitReason:
    """Return the reason of jobs that wait for a probe."""
    return WaitReason(
        WaitCode.CIRCUIT_OPEN,
        (about,),
        row.reason,
        until,
        count=row.failures,
        where=row.key,
        variant=variant,
        error=row.error,
    )
