"""Which SKUs and options are on trial, so that only one machine at a time is launched there.

A SKU is on trial after a row of machines that did not become ready, until one parks, or after a
row of runners that left at once without a job, or one that GitHub refuses for its version, until one
gets a job; an option after a row of its own
machines. It never holds back what is under way.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from autoscaler.model.cooldowns import (
    active_cooldown,
    boots_key,
    exits_key,
    launch_option_key,
    open_circuit,
)
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import MachineId, SkuName
from autoscaler.model.machines import Machine, MachineState
from autoscaler.model.runners import IDLE_STATES, RunnerState


@dataclass(slots=True)
class Trials:
    """What is on trial, and which probes are under way, while a plan is being made.

    `leaving` are the machines that nobody may hope for any more: none of them is a probe.
    """

    fleet: Fleet
    leaving: Collection[MachineId]
    placed: Counter[tuple[SkuName, int]] = field(default_factory=Counter)
    _one_at_a_time: dict[tuple[SkuName, int], bool] = field(default_factory=dict, init=False)

    def of_sku(self, sku: SkuName) -> str | None:
        """Why no machine of a SKU may be launched now, or None."""
        cooldowns = self.fleet.cooldowns
        if (row := open_circuit(cooldowns, exits_key(sku))) is not None:
            words = f"{row.failures} or more machines of {sku} in a row are no good: {row.reason}"
            if row.image:
                words = f"circuit breaker of {sku} open until its image is replaced: {row.reason}"
            if active_cooldown(cooldowns, exits_key(sku), self.fleet.now) is not None:
                return f"{words}; another is tried in a while"
            if self._booting_of(sku) + self._unproved(sku) > 0:
                return f"{words}; one at a time is tried until one gets a job"
        if (row := open_circuit(cooldowns, boots_key(sku))) is not None and self._booting_of(
            sku
        ) > 0:
            return (
                f"{row.failures} machines of {sku} in a row did not become ready, the last one: "
                f"{row.reason}; one at a time is tried until one parks"
            )
        return None

    def of_option(self, sku: SkuName, option: int) -> str | None:
        """Why no machine may be launched on an option now, or None."""
        row = open_circuit(self.fleet.cooldowns, launch_option_key(sku, option))
        if row is None or self._booting(sku, option) <= 0:
            return None
        return f"{row.reason}; one at a time is tried"

    def tries_one_at_a_time(self, sku: SkuName, option: int) -> bool:
        """Whether each machine there may keep the next one from being launched."""
        found = self._one_at_a_time.get((sku, option))
        if found is None:
            keys = (exits_key(sku), boots_key(sku), launch_option_key(sku, option))
            found = any(open_circuit(self.fleet.cooldowns, key) is not None for key in keys)
            self._one_at_a_time[sku, option] = found
        return found

    def count(self, sku: SkuName, option: int, machines: int) -> None:
        """So many more are launched; of what is never sent, so many fewer."""
        self.placed[sku, option] += machines

    def _booting_of(self, sku: SkuName) -> int:
        options = {r for name, r in (*self.fleet.booting, *self.placed) if name == sku}
        return sum(self._booting(sku, option) for option in options)

    def _booting(self, sku: SkuName, option: int) -> int:
        there = self.fleet.booting.get((sku, option), {})
        gone = sum(machine in there for machine in self.leaving)
        return len(there) - gone + self.placed[sku, option]

    def _unproved(self, sku: SkuName) -> int:
        """Machines that are ready, or whose runners were given no job yet."""
        fleet = self.fleet
        there = fleet.count(sku, MachineState.READY) + fleet.runners_without_job.get(sku, 0)
        gone = sum(
            self._is_unproved(fleet.machines[m]) for m in self.leaving if self._is_of(sku, m)
        )
        return there + fleet.deregistering.get(sku, 0) - gone

    def _is_of(self, sku: SkuName, machine: MachineId) -> bool:
        return self.fleet.machines[machine].sku == sku

    def _is_unproved(self, machine: Machine) -> bool:
        runner = self.fleet.runners.get(machine.runner) if machine.runner is not None else None
        if runner is None:
            return machine.state is MachineState.READY
        idle = runner.state in IDLE_STATES and not runner.passed_over
        return idle or runner.state is RunnerState.DEREGISTERING
