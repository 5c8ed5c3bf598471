"""Fuzzes the bootstrap protocol: sequences of requests, some concurrent, against the real service.

Whatever machines and attackers send, a request changes only the machine that it authenticates. A secret
goes to one machine, once. The controller terminates no machine that did not ask for it.
"""

import asyncio
import base64
import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

from aiohttp import web

from autoscaler.controller.ports.provider import ProofRefusedError
from autoscaler.model.identifiers import MachineId
from autoscaler.model.machines.machine import MachineState
from autoscaler.providers.ec2.identity.cms import signed_content
from tests.controller.virtual_time import EPOCH, run
from tests.fuzz import documents
from tests.fuzz.bootstrap_requests import MACHINES, any_steps, asks
from tests.fuzz.bootstrap_world import Fleet, Parts, Snapshot
from tests.fuzz.mutations import mutated, mutated_text
from tests.fuzz.proofs import Proofs
from tests.fuzz.target import Finding, Input, described

STATUSES = frozenset({200, 204, 400, 401, 403, 409, 410, 426, 429, 503})
"""Those of docs/bootstrap.md."""

LONG_ENOUGH = 200.0
"""Seconds of an episode. After 300 s of silence the controller would terminate a machine."""

_OVER = (MachineState.TERMINATING, MachineState.FAILED, MachineState.TERMINATED, MachineState.LOST)


@dataclass(frozen=True, slots=True)
class Said:
    """One request as sent, the machine that its nonce authenticated before, and its answer."""

    step: str
    machine: str
    authorization: str
    body: bytes
    authentic: bool
    answer: web.Response


class BrokenPropertyError(Exception):
    """The text says which."""


class BootstrapTarget:
    """Each input is an episode: its own fleet, and a list of steps."""

    name = "bootstrap"

    def __init__(self, parts: Parts | None = None) -> None:
        self._parts = parts or Parts()
        self.proofs = Proofs(run(_launch_times(self._parts)))

    def draw(self, rng: Random) -> Input:
        """Draw an episode: some machines take valid steps, then arbitrary steps follow."""
        return any_steps(rng, self.proofs)

    def tries(self, given: Input) -> int:
        """Its requests."""
        return sum(len(asks(step)) for step in given)

    def try_all(self, given: Sequence[Input]) -> list[Finding]:
        """See `Target`."""
        found = ((one, self._try(one)) for one in given)
        return [Finding(one, why) for one, why in found if why is not None]

    def close(self) -> None:
        """Nothing is open."""

    def _try(self, steps: Input) -> str | None:
        try:
            run(self._played(steps))
        except BrokenPropertyError as broken:
            return str(broken)
        except Exception as error:  # noqa: BLE001 - a crash is what is looked for
            return f"crashed: {described(error)}"
        return None

    async def _played(self, steps: Input) -> None:
        await _Episode(Fleet(self._parts), self.proofs).play(steps)


class _Episode:
    def __init__(self, fleet: Fleet, proofs: Proofs) -> None:
        self._fleet = fleet
        self._records = fleet.books
        self._proofs = proofs

    async def play(self, steps: Sequence[dict[str, Any]]) -> None:
        """Play an episode. Raises BrokenPropertyError, or any error of the code under test."""
        await self._fleet.launch()
        for step in steps:
            if self._fleet.world.clock.now() - EPOCH > LONG_ENOUGH:
                return
            if step["do"] == "turn":
                await self._fleet.controller.turn(3.0)  # and all that it began has ended
            else:
                await self._ask(asks(step))
            self._check_that_machines_ended_by_their_own_word()
            if self._fleet.controller.crashes:
                raise self._fleet.controller.crashes[0]

    async def _ask(self, wanted: Sequence[dict[str, Any]]) -> None:
        before = self._fleet.snapshot()
        said = await asyncio.gather(*(self._say(one) for one in wanted))
        for one in said:
            if one.answer.status not in STATUSES:
                raise BrokenPropertyError(f"{one.step} was answered {one.answer.status}")
        authenticated = {self._attested(one, before) for one in said if one.step == "attest"}
        authenticated |= {self._authenticated_machine(one) for one in said if one.step != "attest"}
        await asyncio.sleep(0.5)  # what was begun in the background belongs to this request
        self._only_they_changed(before, authenticated)

    async def _say(self, wanted: dict[str, Any]) -> Said:
        body, machine, authorization = self._resolved(wanted)
        read = lambda: nullcontext(body)  # noqa: E731
        step = wanted["step"]
        authentic = self._is_authentic(machine, authorization)
        if step == "attest":
            answer = await self._fleet.endpoint.receive_attestation(read)
        else:
            answer = await self._fleet.endpoint.receive_step(step, machine, authorization, read)
        return Said(step, machine, authorization, body, authentic, answer)

    def _resolved(self, wanted: dict[str, Any]) -> tuple[bytes, str, str]:
        """Return the step with its placeholders replaced and its drawn damage applied."""
        machine = wanted["machine"]
        if isinstance(machine, int):
            machine = self._fleet.machines[machine]
        state = self._fleet.controller.state
        runner = state.machines[self._fleet.machines[wanted["runner"]]].work.runner or "none"
        body = wanted["body"].replace("<runner>", runner).encode("latin-1")
        authorization = wanted["authorization"].replace("<nonce>", self._nonce(wanted["nonce"]))
        if wanted["damage"] == "body":
            body = mutated(Random(wanted["seed"]), body)
        elif wanted["damage"] == "authorization":
            authorization = mutated_text(Random(wanted["seed"]), authorization)
        elif wanted["damage"] == "machine":
            machine = mutated_text(Random(wanted["seed"]), machine)
        return body, machine, authorization

    def _nonce(self, number: int) -> str:
        """Return a machine's current nonce, or an earlier nonce of any machine."""
        if number < MACHINES:
            return self._records.nonces.get(self._fleet.machines[number], "00" * 32)
        ever = self._records.ever or ["00" * 32]
        return ever[number % len(ever)]

    def _is_authentic(self, machine: str, authorization: str) -> bool:
        nonce = self._records.nonces.get(MachineId(machine))
        return nonce is not None and authorization in (f"Bearer {nonce}", f"bearer {nonce}")

    # --- what must hold ------------------------------------------------------------------------

    def _attested(self, said: Said, before: Snapshot) -> MachineId | None:
        """Return the machine whose nonce changes; only a signed proof may change one."""
        if said.answer.status != 200:
            return None
        asked, answered = json.loads(said.body), _json(said.answer)
        machine = MachineId(answered["machine"])
        if self._machine_signed_for(asked["proof"]) != machine:
            raise BrokenPropertyError(f"attested as {machine}, which its proof does not prove")
        if machine in before.may_run_job:
            raise BrokenPropertyError(f"attested as {machine}, which was assigned before")
        self._records.nonces[machine] = asked["nonce"]
        self._records.ever.append(asked["nonce"])
        return machine

    def _machine_signed_for(self, proof: str) -> MachineId | None:
        number = self._proofs.signed.get(_content(proof))
        return None if number is None else self._fleet.machine_of(number)

    def _authenticated_machine(self, said: Said) -> MachineId | None:
        """Return the authenticated machine. No other request may be answered with 2xx."""
        authentic = said.authentic or self._is_authentic(said.machine, said.authorization)
        good = said.answer.status in (200, 204)
        if good and not authentic:
            raise BrokenPropertyError(
                f"{said.step} was answered {said.answer.status} to a stranger"
            )
        if not authentic:
            return None
        machine = MachineId(said.machine)
        if good and (said.step == "exit" or _says_health_checks_failed(said)):
            self._records.may_end.add(machine)
        if good and said.step == "acknowledge":
            self._records.acknowledged.add(machine)
        answered = _json(said.answer) if said.answer.status == 200 else {}
        if "jit_config" in answered:
            self._take_secret(machine, answered)
        return machine

    def _take_secret(self, machine: MachineId, assignment: dict[str, Any]) -> None:
        runner = self._fleet.controller.state.runners[assignment["runner"]]
        if runner.machine != machine:
            raise BrokenPropertyError(f"{machine} received the assignment of {runner.machine}")
        if self._fleet.world.github.secrets[runner.name] != assignment["jit_config"]:
            raise BrokenPropertyError(f"{runner.name} was given another's secret")
        if assignment["jit_config"] in self._records.secrets:
            raise BrokenPropertyError(f"the secret of {runner.name} was given twice")
        if machine in self._records.acknowledged:
            raise BrokenPropertyError(f"{machine} received a second assignment")
        self._records.secrets.add(assignment["jit_config"])

    def _only_they_changed(self, before: Snapshot, authenticated: set[MachineId | None]) -> None:
        after = self._fleet.snapshot()
        for machine, now in after.machines.items():
            if machine not in authenticated and now != before.machines.get(machine):
                raise BrokenPropertyError(f"{machine} changed without its own word")
        of = self._fleet.controller.state.runners
        for name, now in after.runners.items():
            if of[name].machine not in authenticated and now != before.runners.get(name):
                raise BrokenPropertyError(f"{name} changed without its machine's own word")

    def _check_that_machines_ended_by_their_own_word(self) -> None:
        for machine in self._fleet.controller.state.machines.values():
            if machine.state in _OVER and machine.id not in self._records.may_end:
                raise BrokenPropertyError(f"{machine.id} is {machine.state} without its own word")


@lru_cache(maxsize=1000)
def _content(proof: str) -> bytes:
    """Return the signed content of a proof, or nothing if nothing is signed."""
    raw = base64.b64decode("".join(proof.split()))
    if raw[:1] != b"\x30":
        raw = base64.b64decode(raw)
    try:
        return signed_content(raw, documents.PINNED)
    except ProofRefusedError:
        return b""


async def _launch_times(parts: Parts) -> list[float]:
    """The launch time of each machine in every episode."""
    fleet = Fleet(parts)
    await fleet.launch()
    return [float(one.launch_time.removeprefix("t")) for one in fleet.provider.running]


def _json(answer: web.Response) -> dict[str, Any]:
    assert isinstance(answer.body, bytes)
    body: dict[str, Any] = json.loads(answer.body)
    return body


def _says_health_checks_failed(said: Said) -> bool:
    return said.step == "health-checks" and json.loads(said.body)["passed"] is False
