"""The client of the bootstrap protocol (docs/bootstrap.md)."""

from __future__ import annotations

import collections
import email.utils
import http.client
import json
import os
import time

from autoscaler.agent.actions import AttestAgain, BadSettings, PowerOff, TryAgain
from autoscaler.agent.boot.http_client import Answer, Link
from autoscaler.agent.clock import Clock
from autoscaler.agent.host import read_trusted
from autoscaler.agent.limits import MOST_BODY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeGuard, TypeVar

    Found = TypeVar("Found")

VERSION = "1"
PROTOCOL = 1

Assignment = collections.namedtuple("Assignment", ("runner", "jit_config", "job"))


class Controller:
    """The client of the bootstrap protocol. Converts each answer into the agent's next action.

    `answered_at` is when the controller last answered a request of this machine as docs/bootstrap.md
    expects. Only this object has the nonce.
    """

    def __init__(self, link: Link, provider: str, proof: Callable[[], str], clock: Clock) -> None:
        self._link = link
        self._provider = provider
        self._proof = proof
        self._clock = clock
        self._nonce = os.urandom(32).hex()
        self.machine: str | None = None
        self.skew: float | None = None
        self.answered_at = clock.now()

    def attest(self) -> dict[str, Any]:
        """Attest; return the parameters of the health checks.

        Raises TryAgain, AttestAgain, PowerOff.
        """
        self.machine = None
        body = {
            "protocol": PROTOCOL,
            "provider": self._provider,
            "proof": self._proof(),
            "nonce": self._nonce,
            "agent": VERSION,
        }
        before = time.time()
        answer = self._ask("/bootstrap/attest", {}, body)
        self.skew = _skew(answer.date, before, time.time())
        self.machine, health_checks = self._expect(answer, http.client.OK, _parse_attested)
        return health_checks

    def poll(self, wait: float) -> Assignment | None:
        """Wait at most `wait` seconds for a registration. Raises TryAgain, AttestAgain, PowerOff."""
        limit = self._clock.real_timeout(wait + 10.0)
        return self._call("poll", {"wait": wait}, http.client.OK, _parse_polled, limit)[0]

    def report(self, step: str, body: dict[str, Any]) -> None:
        """Send a report, which is answered with 204. Raises TryAgain, AttestAgain, PowerOff."""
        self._call(step, body, http.client.NO_CONTENT, lambda value: value == {})

    def may_release(self) -> bool:
        """Return whether the controller could now ask GitHub to delete the registration.

        Raises TryAgain, AttestAgain, PowerOff.
        """
        allowed = lambda value: _value_of(value, "allowed", bool)  # noqa: E731
        return self._call("may-release", {}, http.client.OK, allowed)[0] is True

    def release(self, timeout: float) -> int:
        """Have the registration deleted within `timeout` real seconds; return GitHub's status.

        Raises TryAgain, AttestAgain, PowerOff.
        """
        status = lambda value: _value_of(value, "status", int)  # noqa: E731
        return int(self._call("release", {}, http.client.OK, status, timeout)[0])

    def _call(
        self,
        step: str,
        body: dict[str, Any],
        status: int,
        read: Callable[[dict[str, Any]], Found | None],
        limit: float | None = None,
    ) -> Found:
        """Send one authenticated request; `limit` is in real seconds."""
        if self.machine is None:
            raise AttestAgain
        path = f"/bootstrap/machines/{self.machine}/{step}"
        headers = {"Authorization": "Bearer " + self._nonce}
        return self._expect(self._ask(path, headers, body, limit), status, read)

    def _ask(
        self, path: str, headers: dict[str, str], body: dict[str, Any], limit: float | None = None
    ) -> Answer:
        text = json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **headers}
        return self._link.ask("POST", path, sent, text, limit or self._clock.real_timeout(10.0))

    def _expect(
        self, answer: Answer, status: int, read: Callable[[dict[str, Any]], Found | None]
    ) -> Found:
        """Return the result of `read`, or raise the action for the answer's status.

        A body that `read` does not accept comes from a proxy, not from the controller.
        """
        value = _object(answer.body)
        if answer.status == status:
            found = read(value)
            if not found:
                raise TryAgain(f"{status}: not an answer")
            self.answered_at = self._clock.now()
            return found
        word = value.get("error")
        ours = is_name(word)  # anything else is a proxy's page, not the controller's answer
        why = f"{answer.status} {word}" if ours else str(answer.status)
        if answer.status in (401, 409):
            raise AttestAgain(why)
        if ours and answer.status in (403, 410, 426):
            raise PowerOff(f"the controller answered {why}")
        raise TryAgain(why, answer.retry_after)


def connect(controller_file: str, proof: Callable[[], str], clock: Clock) -> Controller:
    """Return the client of the controller that this file names. Raises BadSettings."""
    values = read_trusted(controller_file)
    if values is None:
        raise BadSettings(f"{controller_file}: absent")
    url, provider, ca = values.get("controller"), values.get("provider"), values.get("ca")
    if not isinstance(url, str) or not isinstance(provider, str):
        raise BadSettings("controller file: controller and provider must be text")
    if ca is not None and not isinstance(ca, str):
        raise BadSettings("controller file: ca must be text or null")
    return Controller(Link(url, ca), provider, proof, clock)


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _parse_attested(value: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Return the machine's ID and the parameters of the health checks; None for another answer."""
    machine, health_checks = value.get("machine"), value.get("health_checks")
    return (
        (machine, health_checks) if is_name(machine) and isinstance(health_checks, dict) else None
    )


def _parse_polled(value: dict[str, Any]) -> tuple[Assignment | None] | None:
    """Return (None,) for "stay ready", (Assignment,) for a registration, None for neither."""
    state, runner, secret = value.get("state"), value.get("runner"), value.get("jit_config")
    if state == "assigned" and is_name(runner) and _is_secret(secret):
        job = value.get("job")  # absent from controllers before 0.2
        return (Assignment(runner, secret, job if isinstance(job, dict) else {}),)
    return (None,) if state == "ready" else None


def _value_of(value: dict[str, Any], key: str, kind: type) -> tuple[Any] | None:
    """Return the value of `key` if it has exactly this type."""
    found = value.get(key)
    return (found,) if type(found) is kind else None


def is_name(value: object) -> TypeGuard[str]:
    """Return whether this is a short word that is safe in a path and in a log."""
    if not isinstance(value, str) or not 0 < len(value) <= 128:
        return False
    return value.isascii() and value.replace("-", "").replace("_", "").replace(".", "").isalnum()


def _is_secret(value: object) -> TypeGuard[str]:
    """Return whether this can be an environment variable of one line."""
    return (
        isinstance(value, str)
        and 0 < len(value) < MOST_BODY
        and value.isascii()
        and value.isprintable()
    )


def _skew(date: str | None, before: float, after: float) -> float | None:
    """Return the difference of the wall clock to a Date header in seconds; None without a header.

    The header has whole seconds only, so half a second is added.
    """
    parsed = email.utils.parsedate_tz(date or "")
    if parsed is None:
        return None
    return abs(email.utils.mktime_tz(parsed) + 0.5 - (before + after) / 2)
