"""A host whose first machines of a SKU misbehave on purpose, in the order of their boot.

Each is a machine with a real agent. It sends the controller only requests that a real machine could send.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autoscaler.controller.ports.clock import Clock
from lab.machine_host import LabMachine, RebootingHost
from lab.machines.interception import Interception, MachineRequest
from lab.machines.misbehaviour import AT_WORK, Misbehaviour, sabotaged

_M = Misbehaviour

_HANG = (_M.HANGS_IDLE, _M.NO_WORKER, _M.HANGS_AT_WORK, _M.STOPS_AFTER_WORK)
"""The misbehaviours that the stand-in for the listener shows, some time after the acknowledgement."""

PANIC = "Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)\n"


@dataclass(slots=True)
class Misdeed:
    """What one machine did wrong. `at` is the lab time at which it did so, None before that.

    `machine` is the controller's ID of the machine. `attestations` and `exits` are the numbers of these
    requests that it sent. `answers` are the statuses of the answers to its forged requests.
    """

    kind: Misbehaviour
    instance_id: str
    at: float | None = None
    machine: str = ""
    attestations: int = 0
    exits: int = 0
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)


class MisbehavingHost:
    """A `MachineHost` over another one. `close` closes both.

    `misbehaving` lists, by SKU, what its first machine does wrong, its second, and so on. All further
    machines behave.
    """

    def __init__(
        self,
        host: RebootingHost,
        misbehaving: Mapping[str, Sequence[Misbehaviour]],
        clock: Clock,
    ) -> None:
        self._host = host
        self._to_come = {sku: list(kinds) for sku, kinds in misbehaving.items()}
        self._clock = clock
        self._interception = Interception()
        self._tasks: set[asyncio.Task[None]] = set()
        self._dead: set[str] = set()
        self.misdeeds: dict[str, list[Misdeed]] = {sku: [] for sku in misbehaving}

    async def boot(self, machine: LabMachine) -> None:
        """Start the machine, with the misbehaviour that is next for its SKU."""
        kinds = self._to_come.get(machine.sku)
        if not kinds:
            await self._host.boot(machine)
            return
        misdeed = Misdeed(kinds.pop(0), machine.instance_id)
        self.misdeeds[machine.sku].append(misdeed)
        if misdeed.kind in (_M.NEVER_BOOTS, _M.NO_AGENT, _M.FAILS_HEALTH_CHECKS, _M.LOSES_GPU):
            misdeed.at = self._clock.now()
        if misdeed.kind is _M.NEVER_BOOTS:
            self._dead.add(machine.instance_id)
            return
        saboteur = _Saboteur(self, misdeed)
        text = sabotaged(machine.user_data, misdeed.kind)
        text = await self._interception.redirect(machine.instance_id, text, saboteur)
        machine = replace(machine, user_data=text)
        if misdeed.kind is _M.STAYS_ON:
            machine = replace(machine, powered_off=saboteur.stay_on)
        await self._host.boot(machine)

    async def shut_down(self, instance_id: str) -> None:
        """Shut the machine's operating system down."""
        await self._host.shut_down(instance_id)

    async def kill(self, instance_id: str) -> None:
        """Kill the machine's processes at once."""
        await self._host.kill(instance_id)

    def console(self, instance_id: str) -> str:
        """Return the machine's output. A machine that never boots has the output of a hanging kernel."""
        if instance_id in self._dead:
            return PANIC
        return self._host.console(instance_id)

    async def close(self) -> None:
        """Kill every machine and stop the server between machines and controller. Idempotent."""
        await self._host.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._interception.close()

    def now(self) -> float:
        """Return the time in lab seconds."""
        return self._clock.now()

    def reboot(self, instance_id: str) -> None:
        """Reboot a machine in the background."""
        self._spawn(self._host.reboot(instance_id))

    def claim(self, misdeed: Misdeed, lie: str, said: MachineRequest) -> None:
        """Send a request in the machine's name in the background, and record the status of the answer."""
        self._spawn(self._claim(misdeed, lie, said))

    def others(self, machine: str) -> list[str]:
        """Return the controller's IDs of the other misbehaving machines."""
        known = [deed.machine for deeds in self.misdeeds.values() for deed in deeds]
        return [name for name in known if name and name != machine]

    async def _claim(self, misdeed: Misdeed, lie: str, said: MachineRequest) -> None:
        controller = self._interception.controller_of(misdeed.instance_id)
        misdeed.answers[lie, await self._interception.say(controller, said)] += 1

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Saboteur:
    """Reads the requests of one machine and misbehaves at the right moment."""

    def __init__(self, host: MisbehavingHost, misdeed: Misdeed) -> None:
        self._host = host
        self._misdeed = misdeed
        self._attestation: MachineRequest | None = None
        self._heartbeats: int | None = None
        self._down = False

    async def before(self, said: MachineRequest) -> bool:
        """Return whether to pass on the machine's request."""
        deed = self._misdeed
        if said.step == "attest":
            self._attestation, self._down = said, False
            deed.attestations += 1
        elif self._down:
            return False
        elif said.step == "exit":
            deed.exits += 1
            if deed.kind is _M.STAYS_ON and deed.at is None:
                deed.at = self._host.now()
        if said.step == "poll" and deed.at is None:
            if deed.kind is _M.VANISHES_READY:
                return await self._vanish()
            if deed.kind is _M.REBOOTS_READY:
                return self._reboot()
        if said.step == "heartbeat" and self._heartbeats is not None:
            self._heartbeats += 1
            if self._heartbeats == AT_WORK:
                return self._at_work(said)
        return not (deed.kind is _M.SILENT_AT_WORK and deed.at is not None)

    async def after(self, said: MachineRequest, status: int, answer: dict[str, Any]) -> None:
        """Misbehave after the controller has answered and before the machine gets the answer."""
        deed = self._misdeed
        if said.step == "attest" and status == 200:
            deed.machine = str(answer["machine"])
        elif said.step == "poll" and answer.get("state") == "assigned":
            if deed.kind is _M.VANISHES_HANDED:
                await self._vanish()
            elif deed.kind is _M.REBOOTS_HANDED and deed.at is None:
                self._reboot()
        elif said.step == "acknowledge" and status == 204:
            self._heartbeats = 0
            if deed.kind is _M.VANISHES_ACKNOWLEDGED:
                await self._vanish()
            elif deed.kind in _HANG:
                deed.at = self._host.now()

    async def stay_on(self) -> None:
        """Stop all processes without the power-off, so that EC2 still shows the machine as running."""

    async def _vanish(self) -> bool:
        self._misdeed.at = self._host.now()
        await self._host.kill(self._misdeed.instance_id)
        return False

    def _reboot(self) -> bool:
        # Requests that are under way when a machine stops are dropped.
        self._misdeed.at, self._down = self._host.now(), True
        self._host.reboot(self._misdeed.instance_id)
        return False

    def _at_work(self, said: MachineRequest) -> bool:
        match self._misdeed.kind:
            case _M.REBOOTS_AT_WORK:
                return self._reboot()
            case _M.SILENT_AT_WORK:
                self._misdeed.at = self._host.now()
                return False
            case _M.EXITS_AT_WORK:
                self._misdeed.at = self._host.now()
                exit_report = replace(said, step="exit", body={"detail": "not true"})
                self._host.claim(self._misdeed, "its own exit during a job", exit_report)
            case _M.LIES:
                self._misdeed.at = self._host.now()
                for lie, forged in self._lies(said):
                    self._host.claim(self._misdeed, lie, forged)
        return True

    def _lies(self, said: MachineRequest) -> list[tuple[str, MachineRequest]]:
        """Return requests that a job with root could send: it knows the machine's nonce and proof."""
        assert self._attestation is not None
        passed = {"passed": True, "checks": []}
        made_up = f"Bearer {secrets.token_hex(32)}"
        anew = {**self._attestation.body, "nonce": secrets.token_hex(32)}
        lies = [
            ("its own health checks, twice", replace(said, step="health-checks", body=passed)),
            (
                "its own health checks, failed",
                replace(said, step="health-checks", body={"passed": False}),
            ),
            ("an assignment again", replace(said, step="poll", body={"wait": 1.0})),
            ("another's runner", replace(said, step="acknowledge", body={"runner": "r-1"})),
            ("an attestation with another nonce", replace(self._attestation, body=anew)),
            (
                "an unknown machine's poll",
                replace(said, machine="m-unknown", step="poll", body={"wait": 1.0}),
            ),
        ]
        for step, body in (("health-checks", passed), ("exit", {"detail": "not true"})):
            forged = replace(said, step=step, body=body, authorization=made_up)
            lies.append((f"{step} with a made-up nonce", forged))
        for other in self._host.others(said.machine):
            for step, body in (
                ("exit", {"detail": "not true"}),
                ("release", {}),
                ("health-checks", passed),
            ):
                lies.append(
                    (f"another's {step}", replace(said, machine=other, step=step, body=body))
                )
        return lies
