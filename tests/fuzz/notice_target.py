"""Fuzzes the parsers of EC2's notices: a queue may hold any message that its policy allows."""

import json
import math
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random

from autoscaler.controller.ports.capabilities import Notice
from autoscaler.providers.ec2.notices.events import MAX_MACHINES, PoisonError, parse_notice
from tests.fuzz.mutations import mutated
from tests.fuzz.target import Finding, Input, described
from tests.providers.test_ec2_notices import ID, REBALANCE, STATE, event, health, spot

Parse = Callable[[str], Notice | None]
"""The notice in a body. Raises PoisonError and nothing else."""

HONEST = tuple(
    body.encode()
    for body in (
        spot(),
        event(REBALANCE, {"instance-id": ID}),
        event(STATE, {"instance-id": ID, "state": "terminated"}),
        health(),
        event("EC2 Fleet Instance Change", {"fleet-id": "f"}),
    )
)
_NAME = re.compile(r"i-[0-9a-f]{8,17}", re.ASCII)
_KEYS = ("id", "time", "source", "detail-type", "detail", "instance-id", "state", "startTime")
_VALUES: tuple[object, ...] = (
    None,
    True,
    7,
    -1.5,
    10**400,
    "",
    ID,
    f"{ID}\n",
    "\x00",
    [],
    {},
    "x" * 500,
)


class NoticeTarget:
    """`parse` is the code under test, or one with a hole in it."""

    name = "notice"

    def __init__(self, parse: Parse = parse_notice) -> None:
        self._parse = parse

    def draw(self, rng: Random) -> Input:
        """Half from events as AWS sends them, half with fields that are none of AWS's."""
        if rng.random() < 0.5:
            return mutated(rng, rng.choice(HONEST), HONEST).decode("latin-1")
        if rng.random() < 0.02:
            return rng.choice("[{") * rng.randint(1, 5000)
        fields = json.loads(rng.choice(HONEST))
        for _ in range(rng.randint(1, 3)):
            where = rng.choice([fields, fields["detail"]])
            if isinstance(where, dict):
                where[rng.choice(_KEYS)] = deepcopy(rng.choice(_VALUES))
        return json.dumps(fields)

    def tries(self, given: Input) -> int:
        """One message."""
        return 1

    def try_all(self, given: Sequence[Input]) -> list[Finding]:
        """See `Target`."""
        found = ((one, self._try(one)) for one in given)
        return [Finding(one, why) for one, why in found if why is not None]

    def close(self) -> None:
        """Nothing is open."""

    def _try(self, body: str) -> str | None:
        try:
            notice = self._parse(body)
        except PoisonError as poison:
            return None if 0 < len(str(poison)) <= 200 else "a reason without end"
        except Exception as error:  # noqa: BLE001 - a crash is what is looked for
            return f"the parser crashed: {described(error)}"
        if notice is None:
            return None
        if not 0 < len(notice.machines) <= MAX_MACHINES:
            return "a notice that names no machine, or too many"
        if any(_NAME.fullmatch(machine) is None for machine in notice.machines):
            return "a machine was named that can be none"
        if not math.isfinite(notice.means_at):
            return "a notice that means no moment"
        if len(notice.detail) > 200 or not notice.detail.isprintable():
            return "words that cannot be shown"
        return None
