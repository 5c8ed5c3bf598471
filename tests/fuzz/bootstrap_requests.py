"""Draws episodes of the bootstrap protocol from valid, damaged and arbitrary steps.

A machine is its index, or any text. `<nonce>` and `<runner>` are replaced when the step is played.
"""

import json
from random import Random
from typing import Any

from tests.fuzz.proofs import Proofs

Step = dict[str, Any]

MACHINES = 4
STEPS = (
    "stage",
    "health-checks",
    "poll",
    "acknowledge",
    "heartbeat",
    "may-release",
    "release",
    "exit",
)
TURN: Step = {"do": "turn"}

_BODIES = {
    "stage": '{"stage": "driver"}',
    "health-checks": '{"passed": true, "checks": [{"name": "disk", "ok": true}]}',
    "poll": '{"wait": 0}',
    "acknowledge": '{"runner": "<runner>"}',
    "exit": '{"detail": "runner left"}',
}
_ODD_BODIES = (
    "",
    "{}",
    "null",
    "[]",
    '{"passed": false}',
    '{"passed": "false"}',
    '{"passed": false, "passed": true}',
    '{"wait": 1}',
    '{"wait": -1}',
    '{"wait": 1e999}',
    '{"wait": NaN}',
    '{"runner": "../x"}',
    '{"runner": "ci-0badcafe-0000000000000001-1"}',
    '{"stage": "\\u0000"}',
    '{"detail": "' + "x" * 2_000 + '"}',
    '{"detail": "\\ud800"}',
    '{"checks": [' + '{"name": "a", "ok": false},' * 70 + "0]}",
    "[" * 500,
    "\xff\xfe",
)
_ODD_MACHINES = ("", "..", "0" * 16, "f" * 64, "a" * 65, "-", "%00", "\n", "0000000000000001 ")
_ODD_BEARERS = ("", "<nonce>", "Basic <nonce>", "Bearer", "Bearer  <nonce>", "Bearer <nonce>\n")


def asks(step: Step) -> list[Step]:
    """The requests of a step: none for a turn, several for those that are sent at once."""
    if step["do"] == "turn":
        return []
    return list(step["asks"]) if step["do"] == "together" else [step]


def any_steps(rng: Random, proofs: Proofs) -> list[Step]:
    """An episode."""
    steps: list[Step] = []
    for machine in range(MACHINES):
        steps += _led(rng, proofs, machine, rng.choice((0, 1, 2, 3, 4, 4)))
    steps.append(TURN)
    for machine in rng.sample(range(MACHINES), rng.randrange(MACHINES)):
        steps += [_ask(rng, "poll", machine), _ask(rng, "acknowledge", machine)]
    for _ in range(rng.randrange(20, 60)):
        match rng.randrange(16):
            case 0:
                steps.append(TURN)
            case 1:
                together = [_any_ask(rng, proofs) for _ in range(rng.randrange(2, 4))]
                steps.append({"do": "together", "asks": together})
            case _:
                steps.append(_any_ask(rng, proofs))
    return steps


def _led(rng: Random, proofs: Proofs, machine: int, far: int) -> list[Step]:
    honest = [
        _attest(rng, proofs, machine, honest=True),
        _ask(rng, "stage", machine),
        _ask(rng, "health-checks", machine),
        TURN,
    ]
    return honest[:far]


def _any_ask(rng: Random, proofs: Proofs) -> Step:
    machine = rng.randrange(MACHINES)
    asked = (
        _attest(rng, proofs, machine, honest=rng.random() < 0.3)
        if rng.random() < 0.2
        else _ask(rng, rng.choice(STEPS), machine)
    )
    if rng.random() < 0.5:
        return asked if rng.random() < 0.4 else _damaged(rng, asked)
    return _strange(rng, asked)


def _attest(rng: Random, proofs: Proofs, machine: int, *, honest: bool) -> Step:
    said = {
        "protocol": 1 if honest else rng.choice((0, 1, 1, 1, 1, 2)),
        "provider": "east" if honest else rng.choice(("east",) * 5 + ("west", "", "../east")),
        "proof": proofs.honest(machine) if honest else proofs.any(rng, machine),
        "nonce": rng.randbytes(32).hex(),
        "agent": "1.0",
    }
    return _ask(rng, "attest", machine) | {"body": json.dumps(said)}


def _ask(rng: Random, step: str, machine: int) -> Step:
    return {
        "do": "ask",
        "step": step,
        "machine": machine,
        "nonce": machine,
        "runner": machine,
        "authorization": "Bearer <nonce>",
        "body": _BODIES.get(step, "{}"),
        "damage": None,
        "seed": rng.randrange(2**32),
    }


def _damaged(rng: Random, asked: Step) -> Step:
    """A good request with one part of it mutated, or of another machine or another time."""
    match rng.randrange(7):
        case 0 | 1:
            return asked | {"damage": "body"}
        case 2:
            return asked | {"damage": "authorization"}
        case 3:
            return asked | {"damage": "machine"}
        case 4:
            return asked | {"nonce": rng.randrange(MACHINES)}
        case 5:
            return asked | {"nonce": MACHINES + rng.randrange(40)}
    return asked | {"runner": rng.randrange(MACHINES)}


def _strange(rng: Random, asked: Step) -> Step:
    """Return a request whose every part is invalid."""
    if rng.random() < 0.6:
        asked = asked | {"body": rng.choice((*_ODD_BODIES, *_BODIES.values()))}
    if rng.random() < 0.3:
        asked = asked | {"authorization": rng.choice(_ODD_BEARERS)}
    if rng.random() < 0.3:
        asked = asked | {"authorization": f"Bearer {rng.randbytes(32).hex()}"}
    if rng.random() < 0.2:
        asked = asked | {"machine": rng.choice(_ODD_MACHINES)}
    if rng.random() < 0.1:
        asked = asked | {"body": rng.randbytes(rng.randrange(60)).decode("latin-1")}
    return asked
