"""The agent: proves its machine's identity, gets one registration, runs one runner, powers off.

It decides when its own machine has no work left. It never acts for another machine and never starts
a second runner. What a job prints or writes can only make it power its own machine off.
docs/bootstrap.md describes the protocol, docs/agent.md the timers.

One file of Python's standard library, 3.9 and later, for Linux and Windows, so that it can be part of
an image, or be fetched and checked by its SHA-256; that is why it is longer than other files. Imports
are few and light because a hundred agents may start at once on a small host. The Windows parts follow
the documentation and have not been run here.

Run as `python3 -I -S agent.py [--host-file PATH]`. The host file (JSON, all keys optional) overrides
the defaults of `Host`. The file `controller.json` beside it ({"controller": URL, "provider": NAME,
"ca": PEM or null}) names the controller. Both must belong to root, or to the agent's own user, and
must not be writable by others.
"""

# pathlib and typing would take a third of the start-up time:
# ruff: noqa: PTH110, PTH118, PTH120, PTH123, PTH103, PTH208, PYI024
from __future__ import annotations

import binascii
import collections
import email.utils
import http.client
import json
import os
import select
import signal
import stat
import subprocess
import sys
import threading
import time
import urllib.parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, NoReturn, TypeGuard, TypeVar

    Found = TypeVar("Found")

VERSION = "1"
PROTOCOL = 1

# Timers, in seconds of the machine. docs/agent.md describes each; a test compares both.
PATIENCE = 15 * 60.0
HEARTBEAT = 60.0
POLL_WAIT = 50.0
NO_JOB = 2 * 60.0
RELEASE_AGAIN = 60.0
FREEZE = 20.0
NO_WORKER = 12 * 60.0
WORKER_GONE = 5 * 60.0
EXIT_REPORT = 5 * 60.0
STOP = 30.0
RETRY_FIRST = 1.0
RETRY_MOST = 30.0

# Bounds of input, in bytes or numbers.
MOST_BODY = 64 * 1024
MOST_SETTINGS = 256 * 1024
MOST_LOG_AT_ONCE = 256 * 1024
MOST_LOG_FILES = 16
MOST_LINE = 4096
MOST_ERROR = 400
MOST_WORD = 100
MOST_VERSION = 32
MOST_PROCESSES = 4096

# What actions/runner writes to its log or terminal (src/Runner.Listener, 2.336.0): Runner.cs,
# MessageListener.cs, BrokerMessageListener.cs, JobDispatcher.cs.
MESSAGE_SIGNS = (
    b"Acknowledging runner request",
    b"' received from session '",
    b"Received job message",
    b"Running job: ",
)
FINISHED_SIGNS = (b" completed with result: ",)
REFUSED_SIGNS = (
    b"registration has been deleted from the server",
    b"OAuth token has been revoked",
)
# The broker's message for `RunnerVersionTooOld` (BrokerHttpClient.cs; actions/runner#3381, #4613).
DEPRECATED_SIGNS = (b"is deprecated and cannot receive messages",)
# Runner.cs, BrokerMessageListener.cs: whatever the listener retried has succeeded.
CONNECTED_SIGNS = (b"Listening for Jobs", b"Runner reconnected.")
ERROR_SIGN = b"WRITE ERROR: "
"""Terminal.cs writes this to the log before every line that it writes to standard error."""

# Constants.cs, ReturnCode. run.sh returns 7 only where this variable is "1" (run-helper.sh.template,
# since 2.333.0); without it, and for most other codes of the listener, it returns 0.
DEPRECATED_EXIT = 7
DEPRECATED_EXIT_VARIABLE = "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE"

VERSION_TIMEOUT = 60.0
"""Seconds for `Runner.Listener --version`: a new volume loads its blocks when they are first read."""

WINDOWS = sys.platform == "win32"
DISARMED = (0, 1116)
"""Exit statuses of `shutdown /a`: done, and ERROR_NO_SHUTDOWN_IN_PROGRESS (WinError.h)."""
SEAT_CLOSED = "the controller has closed this seat"

# The kernel spares the agent when memory runs out (the unit's OOMScoreAdjust), but not the runner.
UNSPARED = '{ echo 0 > /proc/self/oom_score_adj; } 2> /dev/null; exec "$0"'

Answer = collections.namedtuple("Answer", ("status", "body", "retry_after", "date"))
Assignment = collections.namedtuple("Assignment", ("runner", "jit_config"))
Check = collections.namedtuple("Check", ("name", "ok", "detail"))
Signs = collections.namedtuple(
    "Signs",
    ("exited", "worker", "message", "finished", "refused", "deprecated", "error"),
    defaults=(False, ""),
)
"""An observation of the runner: its exit status or None, and the signs since the last one.

`error` is the listener's last error line before any job.
"""
Left = collections.namedtuple("Left", ("reason", "detail"))
"""Why the runner has left: a reason of docs/bootstrap.md ("Exit reasons"), and text for people."""


class Again(Exception):  # noqa: N818 - an instruction, not an error
    """Try again later, after at least `retry_after` seconds if that is given."""

    def __init__(self, why: str, retry_after: float | None = None) -> None:
        super().__init__(why)
        self.retry_after = retry_after


class AttestAgain(Exception):  # noqa: N818
    """The controller requires a new attestation first."""


class PowerOff(Exception):  # noqa: N818
    """This machine has no work left and must power off."""


class Stopped(PowerOff):
    """The machine is being shut down, by its provider or by a person."""


class Settings(Exception):  # noqa: N818
    """The host file, the controller file or the image cannot be used."""


def say(text: str) -> None:
    """Write one line to the service's journal. Never a secret, never a job's output."""
    sys.stderr.write(f"runner-agent: {text}\n")
    sys.stderr.flush()


def uniform() -> float:
    """Return a random number in [0, 1), from os.urandom, because importing `random` is slow."""
    return int.from_bytes(os.urandom(4), "big") / 2**32


class Clock:
    """The machine's time: monotonic seconds, `scale` of them per real second (1 except in a lab)."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def now(self) -> float:
        """Return the seconds since a fixed moment."""
        return time.monotonic() * self.scale

    def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock."""
        time.sleep(max(0.0, seconds) / self.scale)

    def network(self, seconds: float) -> float:
        """Return a network timeout in real seconds: the network is not faster in a lab."""
        return max(3.0, seconds / self.scale)


class Backoff:
    """Growing delays with jitter: half to all of 1, 2, 4 ... 30 seconds."""

    def __init__(self) -> None:
        self.tries = 0

    def reset(self) -> None:
        """Start again with the shortest delay."""
        self.tries = 0

    def next(self, retry_after: float | None = None) -> float:
        """Return the seconds until the next try, at least `retry_after`. 0 counts as no delay."""
        self.tries += 1
        if retry_after:
            return max(RETRY_FIRST, retry_after) * (1.0 + uniform() / 4)
        return min(RETRY_MOST, RETRY_FIRST * 2.0 ** min(self.tries - 1, 10)) * (0.5 + uniform() / 2)


# --- settings -------------------------------------------------------------------------------------


def read_trusted(path: str) -> dict[str, Any] | None:
    """Read a JSON object from a file that only root, or the agent's user, can write; None if absent.

    Raises Settings.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Settings(f"{path}: {error.strerror}") from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)  # os.fdopen refuses a directory with an error of its own
        raise Settings(f"{path}: not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        if not WINDOWS and (found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022):
            raise Settings(f"{path}: others could have written it")
        text = file.read(MOST_SETTINGS + 1)
    if len(text) > MOST_SETTINGS:
        raise Settings(f"{path}: too long")
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Settings(f"{path}: not JSON") from error
    if not isinstance(value, dict):
        raise Settings(f"{path}: not a JSON object")
    return value


class Host:
    """The settings of the host file, with the defaults of an EC2 machine.

    `root` is a prefix of the agent's own paths. `power_off` and `disarm` (which cancels the shutdown
    that the user data scheduled) are argument lists. `time_scale` is seconds of this machine per
    real second. `runner_user` None runs the runner as the agent's own user, which must not be root.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self.root = self._text(values, "root", "")
        self.metadata = self._text(values, "metadata", "http://169.254.169.254").rstrip("/")
        linux_off, windows_off = ["shutdown", "-P", "now"], ["shutdown", "/s", "/f", "/t", "0"]
        self.power_off = self._argv(values, "power_off", windows_off if WINDOWS else linux_off)
        self.disarm = self._argv(values, "disarm", ["shutdown", "/a" if WINDOWS else "-c"])
        scale = values.get("time_scale", 1.0)
        if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not scale > 0:
            raise Settings("host file: time_scale must be a number above 0")
        self.time_scale = float(scale)
        user = values.get("runner_user", "runner")
        self.runner_user = None if user is None else self._text(values, "runner_user", "runner")
        default = "C:\\actions-runner" if WINDOWS else "/opt/actions-runner"
        self.runner_directory = self._text(values, "runner_directory", default)
        self.runner_task = self._text(values, "runner_task", "actions-runner")
        windows_state = "C:\\ProgramData\\runner-agent\\state"
        self.state = windows_state if WINDOWS else self.root + "/var/lib/runner-agent"

    @property
    def marker(self) -> str:
        """The file that marks that a runner was started on this machine."""
        return os.path.join(self.state, "started")

    @staticmethod
    def _text(values: dict[str, Any], key: str, default: str) -> str:
        value = values.get(key, default)
        if not isinstance(value, str):
            raise Settings(f"host file: {key} must be text")
        return value

    @staticmethod
    def _argv(values: dict[str, Any], key: str, default: list[str]) -> list[str]:
        value = values.get(key, default)
        if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
            raise Settings(f"host file: {key} must be a list of text")
        return value


# --- HTTP -----------------------------------------------------------------------------------------


def proxy_for(host: str, port: int) -> tuple[str, int, dict[str, str]] | None:
    """Return host, port and credential headers of the proxy for an https origin, or None.

    Reads HTTPS_PROXY and NO_PROXY as curl(1) and actions/runner do: a name in NO_PROXY matches itself
    and its subdomains; `*` matches everything. Raises Settings.
    """
    url = os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy")
    if not url:
        return None
    for name in (os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or "").split(","):
        name, of_port = _name_and_port(name.strip().lower())
        matches = name == "*" or host == name or host.endswith("." + name)
        if name and matches and of_port in ("", str(port)):
            return None
    parts = urllib.parse.urlsplit(url if "://" in url else "http://" + url)
    try:
        place = (parts.hostname or "", parts.port or 80)
    except ValueError:
        place = ("", 0)
    if parts.scheme != "http" or not place[0]:
        raise Settings("HTTPS_PROXY must be an http URL")
    headers = {}
    if parts.username is not None:
        words = (urllib.parse.unquote(one or "") for one in (parts.username, parts.password))
        encoded = binascii.b2a_base64(":".join(words).encode(), newline=False)
        headers["Proxy-Authorization"] = "Basic " + encoded.decode()
    return (*place, headers)


def _name_and_port(text: str) -> tuple[str, str]:
    """Return the name and the port (or "") of one entry of NO_PROXY; IPv6 may stand in brackets."""
    if text.count(":") > 1:
        name, _, of_port = text.lstrip("[").partition("]")
        return name, of_port.lstrip(":")
    name, _, of_port = text.lstrip(".").partition(":")
    return name, of_port


class Link:
    """A persistent connection to one HTTP origin. `ca` is PEM text, the only CA that is then trusted.

    https uses the proxy of the environment, plain http (the metadata service) never.
    """

    def __init__(self, url: str, ca: str | None = None) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Settings("not an http or https URL")
        self._secure = parts.scheme == "https"
        self._address = (parts.hostname, parts.port)
        self._prefix = parts.path.rstrip("/")
        self._ca = ca
        self._context: Any = None
        self._connection: http.client.HTTPConnection | None = None

    def ask(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes | None = None,
        timeout: float = 10.0,
    ) -> Answer:
        """Send one request. `timeout` is in real seconds. Raises Again if there is no answer."""
        reused = self._connection is not None
        try:
            try:
                return self._ask(method, path, headers, body, timeout)
            except (http.client.RemoteDisconnected, ConnectionError):
                # The server may have closed a persistent connection meanwhile: try a new one.
                self.close()
                if not reused:
                    raise
                return self._ask(method, path, headers, body, timeout)
        except (OSError, http.client.HTTPException, ValueError, Settings) as error:
            self.close()
            if isinstance(error, Settings):
                raise Again(str(error)) from error
            raise Again(f"{self._address[0]}: {type(error).__name__}") from error

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None, timeout: float
    ) -> Answer:
        connection = self._connection or self._open(timeout)
        self._connection = connection
        connection.timeout = timeout
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        connection.request(method, self._prefix + path, body, headers)
        response = connection.getresponse()
        text = response.read(MOST_BODY + 1)
        if len(text) > MOST_BODY or response.will_close:
            self.close()
        if len(text) > MOST_BODY:
            raise ValueError("answer too long")
        return Answer(
            response.status,
            text,
            _seconds(response.headers.get("Retry-After")),
            response.headers.get("Date"),
        )

    def _open(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._address
        if not self._secure:
            return http.client.HTTPConnection(host, port, timeout=timeout)
        if self._context is None:
            import ssl  # not needed on loopback

            self._context = ssl.create_default_context(cadata=self._ca)
        proxy = proxy_for(host, port or 443)
        if proxy is None:
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._context)
        through, at, headers = proxy
        made = http.client.HTTPSConnection(through, at, timeout=timeout, context=self._context)
        made.set_tunnel(host, port or 443, headers)
        return made


def _seconds(text: str | None) -> float | None:
    """Parse a Retry-After in seconds, at most five minutes; None if there is no valid one."""
    try:
        return min(300.0, max(0.0, float(text))) if text is not None else None
    except ValueError:
        return None


def metadata_proof(url: str, timeout: float) -> str:
    """Read the RSA-2048 signature of the instance identity document, base64 on one line. Raises Again.

    IMDSv2: a session token first (EC2 User Guide, "Use the Instance Metadata Service").
    """
    link = Link(url)
    try:
        lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        token = link.ask("PUT", "/latest/api/token", lifetime, b"", timeout)
        if token.status != http.client.OK:
            raise Again(f"metadata service: token {token.status}")
        headers = {"X-aws-ec2-metadata-token": token.body.decode("ascii", "replace").strip()}
        path = "/latest/dynamic/instance-identity/rsa2048"
        proof = link.ask("GET", path, headers, None, timeout)
        if proof.status != http.client.OK:
            raise Again(f"metadata service: identity {proof.status}")
        return "".join(proof.body.decode("ascii", "replace").split())
    finally:
        link.close()


class Controller:
    """The client of the bootstrap protocol. Converts each answer into the agent's next action.

    `heard` is the time of the last authenticated answer that knows this machine. Only this object has
    the nonce.
    """

    def __init__(self, link: Link, provider: str, proof: Callable[[], str], clock: Clock) -> None:
        self._link = link
        self._provider = provider
        self._proof = proof
        self._clock = clock
        self._nonce = os.urandom(32).hex()
        self.machine: str | None = None
        self.skew: float | None = None
        self.heard = clock.now()

    def attest(self) -> dict[str, Any]:
        """Attest; return the parameters of the health checks. Raises Again, AttestAgain, PowerOff."""
        self.machine = None
        body = {
            "protocol": PROTOCOL,
            "provider": self._provider,
            "proof": self._proof(),
            "nonce": self._nonce,
            "agent": VERSION,
        }
        before = time.time()
        answer = self._ask("/bootstrap/hello", {}, body)
        self.skew = _skew(answer.date, before, time.time())
        self.machine, health_checks = self._expect(answer, http.client.OK, _welcome)
        return health_checks

    def poll(self, wait: float) -> Assignment | None:
        """Wait at most `wait` seconds for a registration. Raises Again, AttestAgain, PowerOff."""
        limit = self._clock.network(wait + 10.0)
        return self._call("poll", {"wait": wait}, http.client.OK, _assign, limit)[0]

    def report(self, step: str, body: dict[str, Any]) -> None:
        """Send a report, which is answered with 204. Raises Again, AttestAgain, PowerOff."""
        self._call(step, body, http.client.NO_CONTENT, lambda value: value == {})

    def may_release(self) -> bool:
        """Return whether the controller can send a DELETE now. Raises Again, AttestAgain, PowerOff."""
        allowed = lambda value: _one(value, "allowed", bool)  # noqa: E731
        return self._call("may-release", {}, http.client.OK, allowed)[0] is True

    def release(self, timeout: float) -> int:
        """Have the registration deleted within `timeout` real seconds; return GitHub's status.

        Raises Again, AttestAgain, PowerOff.
        """
        status = lambda value: _one(value, "status", int)  # noqa: E731
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
        return self._link.ask("POST", path, sent, text, limit or self._clock.network(10.0))

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
                raise Again(f"{status}: not an answer")
            self.heard = self._clock.now()
            return found
        word = value.get("error")
        ours = _is_name(word)  # anything else is a proxy's page, not the controller's answer
        why = f"{answer.status} {word}" if ours else str(answer.status)
        if answer.status in (401, 409):
            raise AttestAgain(why)
        if ours and answer.status in (403, 410, 426):
            raise PowerOff(f"the controller answered {why}")
        raise Again(why, answer.retry_after)


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _welcome(value: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Return the machine's id and the parameters of the health checks."""
    machine, health_checks = value.get("machine"), value.get("gate")
    return (
        (machine, health_checks) if _is_name(machine) and isinstance(health_checks, dict) else None
    )


def _assign(value: dict[str, Any]) -> tuple[Assignment | None] | None:
    """Return (None,) for "stay ready", (Assignment,) for a registration, None for neither."""
    state, runner, secret = value.get("state"), value.get("runner"), value.get("jit_config")
    if state == "assigned" and _is_name(runner) and _is_secret(secret):
        return (Assignment(runner, secret),)
    return (None,) if state == "ready" else None


def _one(value: dict[str, Any], key: str, kind: type) -> tuple[Any] | None:
    """Return the value of `key` if it has exactly this type."""
    found = value.get(key)
    return (found,) if type(found) is kind else None


def _is_name(value: object) -> TypeGuard[str]:
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


# --- the gate -------------------------------------------------------------------------------------


def run_health_checks(
    health_checks: dict[str, Any], skew: float | None, host: Host, timeout: float
) -> list[Check]:
    """Run the health checks with the controller's parameters. `timeout`: real seconds."""
    checks = [Check("controller", True, "answered the hello")]
    wanted = health_checks.get("disk_gb")
    if isinstance(wanted, (int, float)):
        free = _free_bytes(host.root or os.sep) / 2**30
        checks.append(Check("disk", free >= wanted, f"{free:.1f} GiB free, {wanted:g} wanted"))
    allowed = health_checks.get("clock_skew_s")
    if isinstance(allowed, (int, float)):
        known = skew is not None and skew <= allowed
        detail = "no Date header" if skew is None else f"{skew:.1f} s off, {allowed:g} allowed"
        checks.append(Check("clock", known, detail))
    url = health_checks.get("github")
    if isinstance(url, str):
        checks.append(_check_reachable(url, timeout))
    checks.append(_check_runner(host))
    if checks[-1].ok:
        checks.append(_check_version(host, timeout * VERSION_TIMEOUT / 10.0))
    return checks


def _check_reachable(url: str, timeout: float) -> Check:
    try:
        path = urllib.parse.urlsplit(url)
        link = Link(f"{path.scheme}://{path.netloc}")
        try:
            query = f"?{path.query}" if path.query else ""
            answer = link.ask(
                "GET", (path.path or "/") + query, {"User-Agent": "runner-agent"}, None, timeout
            )
        finally:
            link.close()
    except (Again, Settings, ValueError) as error:
        return Check("github", False, str(error)[:200])
    return Check("github", answer.status < 500, f"answered {answer.status}")


def _check_runner(host: Host) -> Check:
    program = runner_program(host)
    if not os.access(program, os.R_OK):
        return Check("runner", False, "the runner is not installed")
    if WINDOWS:
        return Check("runner", True, "installed")
    try:
        runner_account(host)
    except Settings as error:
        return Check("runner", False, str(error))
    return Check("runner", True, "installed")


def _check_version(host: Host, timeout: float) -> Check:
    """Check that the listener starts; the detail is its version. `timeout`: real seconds.

    `--version` needs no registration (Runner.cs). A slow listener passes.
    """
    program = "Runner.Listener.exe" if WINDOWS else "Runner.Listener"
    argv = [os.path.join(host.runner_directory, "bin", program), "--version"]
    try:
        identity, variables = runner_account(host)
        done = subprocess.run(  # noqa: S603 - a fixed program of the image
            argv,
            check=False,
            cwd=host.runner_directory,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            **identity,
        )
    except subprocess.TimeoutExpired:
        return Check("runner_version", True, f"not known: no answer in {VERSION_TIMEOUT:g} s")
    except (OSError, Settings, subprocess.SubprocessError) as error:
        return Check("runner_version", False, f"{program} does not start: {type(error).__name__}")
    lines = done.stdout.splitlines()
    last = readable(lines[-1]) if lines else ""
    if done.returncode != 0:
        return Check("runner_version", False, f"{program} exited with {done.returncode}: {last}")
    if not last[:1].isdigit() or not _is_name(last) or len(last) > MOST_VERSION:
        return Check("runner_version", True, "not known: the answer is not a version")
    return Check("runner_version", True, last)


def _free_bytes(path: str) -> int:
    if WINDOWS:
        import shutil  # slow to import, and Linux has statvfs

        return shutil.disk_usage(path).free
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


# --- the runner -----------------------------------------------------------------------------------


def runner_program(host: Host) -> str:
    """Return the path of the runner's start script."""
    return os.path.join(host.runner_directory, "run.cmd" if WINDOWS else "run.sh")


def runner_account(host: Host) -> tuple[dict[str, Any], dict[str, str]]:
    """Return arguments for Popen that drop privileges, and the user's environment variables.

    If the agent is not root, the runner has the agent's user. Raises Settings if it would be root.
    """
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return {}, {}
    import pwd  # absent on Windows

    try:
        account = pwd.getpwnam(host.runner_user or "root")
    except KeyError as error:
        raise Settings("the runner's user does not exist") from error
    if account.pw_uid == 0:
        raise Settings("the runner would run as root")
    groups = os.getgrouplist(account.pw_name, account.pw_gid)
    identity = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": groups}
    name = account.pw_name
    return identity, {"HOME": account.pw_dir, "USER": name, "LOGNAME": name}


def readable(line: bytes) -> str:
    """Return a program's error line: printable, shortened, without long words that may be secrets.

    A JIT configuration is a word of thousands of characters.
    """
    text = line[:MOST_LINE].decode("utf-8", "replace")
    words = "".join(char if char.isprintable() else " " for char in text).split()
    return " ".join(word if len(word) <= MOST_WORD else "[...]" for word in words)[:MOST_ERROR]


def search_path(directory: str) -> dict[str, str]:
    """Return PATH from the image's `.path`, which config.sh and env.sh write for runsvc.sh.

    The listener reads `.env` itself (Program.cs, LoadAndSetEnv), but not `.path`. Returns nothing if
    there is no such file, or if it is not one line of text.
    """
    try:
        with open(os.path.join(directory, ".path"), encoding="utf-8") as file:
            text = file.read(MOST_BODY).strip()
    except (OSError, ValueError):
        return {}
    return {"PATH": text} if text and text.isprintable() else {}


class Lines:
    """Splits a stream into lines, so that each phrase is seen completely and once."""

    def __init__(self) -> None:
        self._rest = b""

    def whole(self, piece: bytes) -> bytes:
        """Return the lines that this piece completes; long lines are cut."""
        first, end, more = piece.partition(b"\n")
        rest = (self._rest + first)[:MOST_LINE]
        if not end:
            self._rest = rest
            return b""
        lines, last, more = more.rpartition(b"\n")
        self._rest = more[:MOST_LINE]
        return rest + end + lines + last

    def last(self) -> bytes:
        """Return the last, incomplete line."""
        rest, self._rest = self._rest, b""
        return rest


class LogReader:
    """Reads what the listener has added to its log files since the agent started it.

    The files belong to the runner's user. So they are read without following links, without blocking,
    and in bounded pieces, and only fixed phrases count.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._offsets: dict[str, int] = {}
        self._lines: dict[str, Lines] = {}
        for name, size in self._files():
            self._offsets[name] = size

    def pieces(self) -> Iterator[bytes]:
        """Return the new complete lines of every file."""
        for name, _size in self._files():
            piece = self._read(name)
            if piece:
                yield self._lines.setdefault(name, Lines()).whole(piece)

    def _files(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        try:
            with os.scandir(self._directory) as entries:
                for entry in entries:
                    if entry.name.startswith("Runner_") and entry.is_file(follow_symlinks=False):
                        found.append((entry.name, entry.stat(follow_symlinks=False).st_size))
                    if len(found) >= MOST_LOG_FILES:
                        break
        except OSError:
            return found
        return found

    def _read(self, name: str) -> bytes:
        offset = self._offsets.get(name, 0)
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            descriptor = os.open(os.path.join(self._directory, name), flags)
        except OSError:
            return b""
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return b""
            file.seek(offset)
            piece = file.read(MOST_LOG_AT_ONCE) or b""
        self._offsets[name] = offset + len(piece)
        return piece


class SignReader:
    """Finds signs in the listener's messages, until a worker was seen: a job's output never counts."""

    def __init__(self) -> None:
        self._message = self._finished = self._refused = self._deprecated = False
        self._job = False
        self._error = ""

    def feed(self, text: bytes, *, errors: bool = False) -> None:
        """Find the phrases in complete lines: one sign per line, because a job's name may contain others.

        `errors`: the lines are from standard error. No line is kept after the first sign of a job.
        """
        for line in text.splitlines():
            if any(sign in line for sign in MESSAGE_SIGNS):
                self._message = self._job = True
            elif any(sign in line for sign in FINISHED_SIGNS):
                self._finished = self._job = True
            else:
                self._refused = self._refused or any(sign in line for sign in REFUSED_SIGNS)
                self._deprecated = self._deprecated or any(
                    sign in line for sign in DEPRECATED_SIGNS
                )
                self._keep_error(line, errors)

    def take(self, exited: int | None, worker: bool) -> Signs:
        """Return the signs since the last call."""
        seen = (self._message, self._finished, self._refused, self._deprecated)
        self._message = self._finished = self._refused = self._deprecated = False
        return Signs(exited, worker, *seen, self._error)

    def _keep_error(self, line: bytes, errors: bool) -> None:
        if any(sign in line for sign in CONNECTED_SIGNS):
            self._error = ""
        _, found, logged = line.partition(ERROR_SIGN)
        if (errors or found) and not self._job:
            self._error = readable(logged if found else line) or self._error


class LinuxRunner:
    """run.sh and all processes below it, in a session of its own, as an unprivileged user."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._log = LogReader(os.path.join(host.runner_directory, "_diag"))
        self._signs = SignReader()
        self._listening = True
        self._printed = {False: Lines(), True: Lines()}
        self._process: subprocess.Popen[bytes] | None = None
        self._frozen: list[int] = []
        self._lock = threading.Lock()

    def start(self, jit_config: str) -> None:
        """Start run.sh. The JIT configuration is in its environment, because every user can read argv."""
        identity, variables = runner_account(self._host)
        environment = {
            **os.environ,
            **variables,
            **search_path(self._host.runner_directory),
            DEPRECATED_EXIT_VARIABLE: "1",
            "ACTIONS_RUNNER_INPUT_JITCONFIG": jit_config,
        }
        self._process = subprocess.Popen(  # noqa: S603 - a fixed program of the image
            ["/bin/sh", "-c", UNSPARED, runner_program(self._host)],
            cwd=self._host.runner_directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            umask=0o022,
            **identity,
        )
        for pipe in self._open_pipes(self._process):
            os.set_blocking(pipe.fileno(), False)

    def look(self, wait: float) -> Signs:
        """Wait at most `wait` real seconds for the exit or for output; return the signs."""
        process = self._started()
        self._drain(process, wait)
        # The last output was written before the exit, so it is read after the exit was seen.
        exited = process.poll()
        if exited is not None:
            self._drain_rest(process)
        worker = self.worker_runs()
        if worker:
            self._listening = False
        elif self._listening:
            for piece in self._log.pieces():
                self._signs.feed(piece)
        return self._signs.take(exited, worker)

    def worker_runs(self) -> bool:
        """Return whether a Runner.Worker is among the runner's descendants."""
        return any(process_name(pid) == "Runner.Worker" for pid in descendants(self._started().pid))

    def freeze(self) -> None:
        """Stop every process of the runner, so that it can neither take a job nor start a worker."""
        root = self._started().pid
        with self._lock:
            while True:
                fresh = [pid for pid in (root, *descendants(root)) if pid not in self._frozen]
                if not fresh:
                    return
                for pid in fresh:
                    _signal(pid, signal.SIGSTOP)
                    self._frozen.append(pid)

    def resume(self) -> None:
        """Continue the stopped processes. Idempotent; may be called from another thread."""
        with self._lock:
            for pid in reversed(self._frozen):
                _signal(pid, signal.SIGCONT)
            self._frozen.clear()

    @property
    def frozen(self) -> bool:
        """Return whether the runner is still stopped."""
        return bool(self._frozen)

    def interrupt(self) -> bool:
        """Send SIGTERM to the listener, which cancels its job within 30 seconds (Runner_Unloading).

        Returns False where no listener runs: run.sh may not have started it yet. run.sh itself forwards
        signals only with RUNNER_MANUALLY_TRAP_SIG.
        """
        self.resume()
        below = descendants(self._started().pid)
        listeners = [pid for pid in below if process_name(pid) == "Runner.Listener"]
        for pid in listeners:
            _signal(pid, signal.SIGTERM)
        return bool(listeners)

    def kill(self) -> None:
        """Kill all processes below run.sh, and run.sh."""
        process = self._started()
        for pid in descendants(process.pid):
            _signal(pid, signal.SIGKILL)
        process.kill()
        _wait(process, 5.0)

    def _started(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    def _drain(self, process: subprocess.Popen[bytes], wait: float) -> None:
        """Read run.sh's output: a full pipe would block it."""
        pipes = self._open_pipes(process)
        if not pipes:
            _wait(process, wait)
            return
        for pipe in select.select(pipes, [], [], wait)[0]:
            piece = pipe.read(MOST_BODY)
            if piece == b"":
                pipe.close()
            elif piece and self._listening:
                errors = pipe is process.stderr
                self._signs.feed(self._printed[errors].whole(piece), errors=errors)
        if not self._open_pipes(process):
            _wait(process, wait)

    def _drain_rest(self, process: subprocess.Popen[bytes]) -> None:
        """Read the rest of the output after the exit, up to a bound, and its incomplete lines."""
        for _ in range(MOST_LOG_AT_ONCE // MOST_BODY):
            self._drain(process, 0.0)
        if self._listening:
            for errors, lines in self._printed.items():
                self._signs.feed(lines.last(), errors=errors)

    @staticmethod
    def _open_pipes(process: subprocess.Popen[bytes]) -> list[Any]:
        return [pipe for pipe in (process.stdout, process.stderr) if pipe and not pipe.closed]


def _wait(process: subprocess.Popen[bytes], wait: float) -> None:
    try:
        process.wait(wait)
    except subprocess.TimeoutExpired:
        return


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def process_name(pid: int) -> str:
    """Return the kernel's name of a process (its program, 15 characters), or an empty text."""
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as file:
            return file.read(64).strip()
    except OSError:
        return ""


def descendants(root: int) -> list[int]:
    """Return the processes below this one, nearest first, up to a bound."""
    found: list[int] = []
    level = [root]
    while level and len(found) < MOST_PROCESSES:
        level = [child for pid in level for child in children_of(pid)][:MOST_PROCESSES]
        found.extend(level)
    return found


def children_of(pid: int) -> list[int]:
    """Return a process's children. The kernel lists them by thread (CONFIG_PROC_CHILDREN)."""
    children: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return children
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                children.extend(int(word) for word in file.read(MOST_BODY).split()[:MOST_PROCESSES])
        except FileNotFoundError:
            if os.path.exists(f"/proc/{pid}/task/{thread}/stat"):
                return children_by_parent(pid)
        except OSError:
            continue
    return children


def children_by_parent(pid: int) -> list[int]:
    """Return a process's children by reading every process, for kernels without the list."""
    children: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read(MOST_LINE).rpartition(")")[2].split()
        except OSError:
            continue
        if len(fields) > 1 and fields[1] == str(pid):
            children.append(int(name))
    return children


if sys.platform == "win32":
    import ctypes
    import ctypes.wintypes as wt

    class _Entry(ctypes.Structure):
        """PROCESSENTRY32W (tlhelp32.h)."""

        _fields_ = (
            ("size", wt.DWORD),
            ("usage", wt.DWORD),
            ("pid", wt.DWORD),
            ("heap", ctypes.c_size_t),
            ("module", wt.DWORD),
            ("threads", wt.DWORD),
            ("parent", wt.DWORD),
            ("priority", wt.LONG),
            ("flags", wt.DWORD),
            ("name", wt.WCHAR * 260),
        )

    def _processes() -> dict[int, str]:
        """Every process' program name by its id."""
        kernel = ctypes.windll.kernel32
        kernel.CreateToolhelp32Snapshot.restype = wt.HANDLE
        snapshot = wt.HANDLE(kernel.CreateToolhelp32Snapshot(0x2, 0))
        found: dict[int, str] = {}
        entry = _Entry(size=ctypes.sizeof(_Entry))
        more = kernel.Process32FirstW(snapshot, ctypes.byref(entry))
        while more and len(found) < MOST_PROCESSES:
            found[entry.pid] = entry.name
            more = kernel.Process32NextW(snapshot, ctypes.byref(entry))
        kernel.CloseHandle(snapshot)
        return found

    def _with_process(pid: int, access: int, action: Callable[[Any], object]) -> None:
        kernel = ctypes.windll.kernel32
        kernel.OpenProcess.restype = wt.HANDLE
        handle = kernel.OpenProcess(access, False, pid)
        if handle:
            action(wt.HANDLE(handle))
            kernel.CloseHandle(wt.HANDLE(handle))

    class WindowsRunner:
        """run.cmd, started by a scheduled task that the image registered for its runner account.

        The task's action is `powershell -File C:\\ProgramData\\runner-agent\\handover\\launch.ps1`.
        The image creates that folder: the runner's account may change it, other users may not read it.
        """

        PROGRAMS = ("Runner.Listener.exe", "Runner.Worker.exe")

        def __init__(self, host: Host) -> None:
            self._host = host
            self._log = LogReader(os.path.join(host.runner_directory, "_diag"))
            self._signs = SignReader()
            self._listening = True
            self._frozen: list[int] = []
            self._begun = False
            self._missed = 0

        def start(self, jit_config: str) -> None:
            """Pass the JIT configuration in a file that the launcher reads and deletes."""
            folder = "C:\\ProgramData\\runner-agent\\handover"
            with open(os.path.join(folder, "jit"), "w", encoding="ascii") as file:
                file.write(jit_config)
            launcher = (
                f"$f = '{folder}\\jit'\n"
                "$env:ACTIONS_RUNNER_INPUT_JITCONFIG = (Get-Content -Raw $f).Trim()\n"
                f"$env:{DEPRECATED_EXIT_VARIABLE} = '1'\n"
                "Remove-Item -Force $f\n"
                f"Set-Location '{self._host.runner_directory}'\n"
                "& .\\run.cmd\n"
            )
            with open(os.path.join(folder, "launch.ps1"), "w", encoding="ascii") as file:
                file.write(launcher)
            task = ["schtasks", "/run", "/tn", self._host.runner_task]
            subprocess.run(task, check=True)  # noqa: S603 - the name comes from the host file

        def look(self, wait: float) -> Signs:
            """Sleep `wait` real seconds, then look. The exit status of a task's program is not known."""
            time.sleep(wait)
            names = _processes().values()
            worker = self.PROGRAMS[1] in names
            self._listening = self._listening and not worker
            if self._listening:
                for piece in self._log.pieces():
                    self._signs.feed(piece)
            return self._signs.take(self._exit(self.PROGRAMS[0] in names or worker, wait), worker)

        def _exit(self, alive: bool, wait: float) -> int | None:
            """run.cmd restarts its listener within seconds, and the task takes a while to begin."""
            self._begun = self._begun or alive
            self._missed = 0 if alive else self._missed + 1
            return 0 if self._missed * wait > (15 if self._begun else 120) else None

        def worker_runs(self) -> bool:
            """Whether a worker is among the machine's processes."""
            return self.PROGRAMS[1] in _processes().values()

        def freeze(self) -> None:
            """Suspend the listener (PROCESS_SUSPEND_RESUME)."""
            for pid, name in _processes().items():
                if name == self.PROGRAMS[0]:
                    _with_process(pid, 0x800, ctypes.windll.ntdll.NtSuspendProcess)
                    self._frozen.append(pid)

        def resume(self) -> None:
            """Let it run again. Idempotent."""
            while self._frozen:
                _with_process(self._frozen.pop(), 0x800, ctypes.windll.ntdll.NtResumeProcess)

        @property
        def frozen(self) -> bool:
            """Whether it is still suspended."""
            return bool(self._frozen)

        def interrupt(self) -> bool:
            """Return True: Windows itself signals the shutdown to every process."""
            return True

        def kill(self) -> None:
            """End listener and worker (PROCESS_TERMINATE)."""
            for pid, name in _processes().items():
                if name in self.PROGRAMS:
                    _with_process(pid, 0x1, lambda h: ctypes.windll.kernel32.TerminateProcess(h, 1))

    Runner = WindowsRunner
else:
    Runner = LinuxRunner


class Watch:
    """Decides from the signs of the runner whether to continue. Pure: the caller passes the time."""

    RELEASE = "release"

    def __init__(self, started: float) -> None:
        self._message: float | None = None
        self._worked = False
        self._gone: float | None = None
        self._ask_at = started + NO_JOB
        self._error = ""

    @property
    def job_possible(self) -> bool:
        """Return whether there were signs of a job, so that a worker runs or may still start."""
        return self._worked or self._message is not None

    def decide(self, now: float, signs: Signs) -> str | Left | None:
        """Return None to continue, RELEASE to release the registration, or why to power off."""
        self._error = signs.error
        if signs.message and not self._worked:
            self._message = now
        if signs.worker:
            self._worked, self._gone = True, None
            return None
        if signs.finished:
            self._worked = True
        idle = not self.job_possible
        if idle and (signs.deprecated or signs.exited == DEPRECATED_EXIT):
            return self.left("version_deprecated", "GitHub refuses the runner's version")
        if idle and signs.refused:
            return self.left("registration_refused", "GitHub refuses the registration")
        if signs.exited is not None:
            return self.left("exited", f"the runner exited with status {signs.exited}")
        if self._worked:
            self._gone = now if self._gone is None else self._gone
            return self._after(
                now, self._gone, WORKER_GONE, "the worker is gone, the listener stays"
            )
        if self._message is not None:
            return self._after(now, self._message, NO_WORKER, "a job message came, but no worker")
        return self.RELEASE if now >= self._ask_at else None

    def left(self, reason: str, detail: str) -> Left:
        """Return why the runner has left, with the listener's last error if there was no job."""
        if self._error and not self.job_possible:
            return Left(reason, f"{detail}: {self._error}")
        return Left(reason, detail)

    def left_unused(self, detail: str) -> Left:
        """Return why a runner without a job leaves: it got none, or its last word was an error."""
        return self.left("not_connected" if self._error else "unused", detail)

    def ask_again(self, now: float) -> None:
        """The release did not happen: ask again later."""
        self._ask_at = now + RELEASE_AGAIN

    @staticmethod
    def _after(now: float, since: float, limit: float, why: str) -> Left | None:
        return Left("hung", why) if now - since >= limit else None


# --- the whole ------------------------------------------------------------------------------------


class Agent:
    """One machine's lifecycle, from the attestation to the power-off. `runner` creates the runner."""

    def __init__(
        self,
        host: Host,
        clock: Clock,
        controller: Controller,
        runner: Callable[[Host], Any] = Runner,
    ) -> None:
        self._host = host
        self._clock = clock
        self._controller = controller
        self._make_runner = runner
        self._backoff = Backoff()
        self._beat_at: float | None = None
        self._closed = ""
        self._supervising = False
        self._stop_by: float | None = None

    def stop(self, *_signal: object) -> None:
        """Handle SIGTERM: give a runner its time to stop.

        Raises Stopped if no runner was started.
        """
        if not self._supervising:
            raise Stopped("the machine is being shut down")
        if self._stop_by is None:
            self._stop_by = self._clock.now() + STOP

    def live(self) -> NoReturn:
        """Run the whole lifecycle. Ends by raising PowerOff with the reason."""
        assignment = self.wait_for_assignment()
        runner = self._make_runner(self._host)
        try:
            self._mark()
            self._supervising = True
            runner.start(assignment.jit_config)
        except (OSError, Settings, subprocess.SubprocessError) as error:
            left = Left("not_started", f"the runner could not be started: {type(error).__name__}")
        else:
            say(f"runner {assignment.runner} started")
            left = self.supervise(runner)
        if self._stop_by is not None:
            self.report_exit(left, 0.0)
            raise Stopped(left.detail)
        self.report_exit(left)
        raise PowerOff(left.detail)

    def wait_for_assignment(self) -> Assignment:
        """Attest, run the health checks and poll until a registration is acknowledged. Raises PowerOff."""
        ready = False
        retry_after: float | None = None
        waiting = False
        while True:
            try:
                if waiting:
                    waiting = False
                    self._pause(retry_after)
                if not ready:
                    self._introduce()
                    ready = True
                assignment = self._poll()
                if assignment is not None:
                    self._acknowledge(assignment)
                    return assignment
                self._backoff.reset()
            except AttestAgain as reason:
                self._controller.machine = None
                ready, waiting, retry_after = False, True, None
                say(f"hello again: {reason}")
            except Again as reason:
                waiting, retry_after = True, reason.retry_after
                say(f"again: {reason}")

    def _introduce(self) -> None:
        health_checks = self._controller.attest()
        if self._beat_at is None:
            self._beat_at = self._clock.now() + HEARTBEAT
        self._controller.report("stage", {"stage": "gate"})
        checks = run_health_checks(
            health_checks, self._controller.skew, self._host, self._clock.network(10.0)
        )
        passed = all(check.ok for check in checks)
        found = [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in checks]
        self._controller.report("gate", {"passed": passed, "checks": found})
        if not passed:
            failed = ", ".join(check.name for check in checks if not check.ok)
            raise PowerOff(f"the gate failed: {failed}")

    def _poll(self) -> Assignment | None:
        self._beat()
        begun = self._clock.now()
        due = POLL_WAIT if self._beat_at is None else self._beat_at - begun
        assignment = self._controller.poll(max(1.0, min(POLL_WAIT, due)))
        if assignment is None and self._clock.now() - begun < RETRY_FIRST:
            # An immediate answer must not cause a busy loop.
            self._clock.sleep(RETRY_FIRST * (0.5 + uniform() / 2))
        return assignment

    def _acknowledge(self, assignment: Assignment) -> None:
        """Repeat until it is answered. A poll instead would have the registration replaced."""
        while True:
            try:
                self._controller.report("acknowledge", {"runner": assignment.runner})
            except Again as reason:
                self._pause(reason.retry_after)
            else:
                return

    def _pause(self, retry_after: float | None) -> None:
        """Wait before the next try, or power off after PATIENCE."""
        end = self._controller.heard + PATIENCE
        until = min(end, self._clock.now() + self._backoff.next(retry_after))
        while self._clock.now() < until:
            self._beat()
            due = until if self._beat_at is None else max(self._beat_at, self._clock.now() + 0.1)
            self._clock.sleep(min(until, due) - self._clock.now())
        if self._clock.now() >= self._controller.heard + PATIENCE:
            raise PowerOff("no answer that knows this machine for 15 minutes")

    def _beat(self) -> None:
        """Send a heartbeat if it is due. A refusal counts only before the registration."""
        now = self._clock.now()
        if self._beat_at is None or now < self._beat_at or self._controller.machine is None:
            return
        self._beat_at = now + HEARTBEAT
        try:
            self._controller.report("heartbeat", {})
        except Again:
            return

    def _mark(self) -> None:
        """Write the marker, for root only, that this machine's one runner was started."""
        os.makedirs(self._host.state, mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = os.open(self._host.marker, flags, 0o600)
        os.fsync(descriptor)
        os.close(descriptor)

    def supervise(self, runner: Any) -> Left:
        """Supervise the runner to its end; return why it ended. A silent controller is no reason."""
        watch = Watch(self._clock.now())
        tick = max(0.2, 1.0 / self._clock.scale)
        interrupted = False
        while True:
            signs = runner.look(tick)
            decision = watch.decide(self._clock.now(), signs)
            if self._stop_by is not None:
                interrupted = interrupted or runner.interrupt()
                if signs.exited is not None or self._clock.now() >= self._stop_by:
                    decision = Left("stopped", "the machine is being shut down")
                elif not isinstance(decision, Left):
                    continue
            if decision is None and self._closed and not watch.job_possible:
                decision = self._give_up(runner, watch)
            elif decision == Watch.RELEASE:
                decision = self._release(runner, watch)
                watch.ask_again(self._clock.now())
            if isinstance(decision, Left):
                runner.kill()
                return decision
            self._beat_while_running()

    def _beat_while_running(self) -> None:
        try:
            self._beat()
        except AttestAgain:
            # A new attestation is not possible with a runner; the runner continues.
            return
        except PowerOff:
            self._closed = SEAT_CLOSED

    def _idle(self, runner: Any, watch: Watch) -> bool:
        """Return whether no worker runs and no job message has come. The runner must be stopped."""
        watch.decide(self._clock.now(), runner.look(0.0))
        return not watch.job_possible and not runner.worker_runs()

    def _give_up(self, runner: Any, watch: Watch) -> Left | None:
        """Leave because no job can come any more, unless one has come meanwhile."""
        runner.freeze()
        if self._idle(runner, watch):
            if self._closed == SEAT_CLOSED:
                return watch.left("seat_closed", self._closed)
            return watch.left_unused(self._closed)
        runner.resume()
        return None

    def _release(self, runner: Any, watch: Watch) -> Left | None:
        """Have the idle runner's registration deleted. Return why to power off, or None to continue."""
        limit = FREEZE / self._clock.scale
        thaw = threading.Timer(limit, runner.resume)
        try:
            if not self._controller.may_release():
                return None
            began = time.monotonic()
            thaw.start()
            runner.freeze()
            if self._idle(runner, watch):
                left = began + limit - time.monotonic()
                status = self._controller.release(max(0.01, left))
                # A listener that was resumed before the answer may have taken a job.
                if status in (204, 404):
                    if runner.frozen:
                        return watch.left_unused("no job came, the registration is deleted")
                    self._closed = "the registration is deleted"
        except (Again, AttestAgain):
            say("could not ask for the release")
        except PowerOff:
            self._closed = SEAT_CLOSED
        finally:
            thaw.cancel()
        runner.resume()
        return None

    def report_exit(self, why: Left, patience: float = EXIT_REPORT) -> None:
        """Report the runner's exit, trying for at most five minutes; once if `patience` is 0."""
        self._backoff.reset()
        end = self._clock.now() + patience
        while True:
            try:
                self._controller.report("exit", why._asdict())
            except Again as reason:
                left = end - self._clock.now()
                if left <= 0:
                    say("the exit could not be reported")
                    return
                self._clock.sleep(min(left, self._backoff.next(reason.retry_after)))
            except (AttestAgain, PowerOff) as reason:
                say(f"the exit report was refused: {reason}")
                return
            else:
                return


def command(argv: list[str], fine: tuple[int, ...] = (0,)) -> bool:
    """Run one of the host's commands; return whether its exit status is in `fine`."""
    try:
        done = subprocess.run(  # noqa: S603 - argv comes from the root-only host file
            argv, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        say(f"{argv[0]}: {type(error).__name__}")
        return False
    return done.returncode in fine


def disarm(argv: list[str], tries: int = 5, pause: float = 2.0) -> None:
    """Cancel the scheduled shutdown. Raises PowerOff if this fails: the shutdown would kill a job."""
    for _ in range(tries):
        if command(argv, DISARMED):
            return
        time.sleep(pause)
    raise PowerOff("the armed shutdown could not be taken back")


def power_off(argv: list[str]) -> None:
    """Power the machine off, and wait for it. If this fails, the end of the service does it."""
    for _ in range(3):
        command(argv)
        time.sleep(20)


def build(host: Host, controller_file: str) -> Agent:
    """Create the agent from its settings. Raises Settings."""
    values = read_trusted(controller_file)
    if values is None:
        raise Settings(f"{controller_file}: absent")
    url, provider, ca = values.get("controller"), values.get("provider"), values.get("ca")
    if not isinstance(url, str) or not isinstance(provider, str):
        raise Settings("controller file: controller and provider must be text")
    if ca is not None and not isinstance(ca, str):
        raise Settings("controller file: ca must be text or null")
    clock = Clock(host.time_scale)
    timeout = clock.network(5.0)
    proof = lambda: metadata_proof(host.metadata, timeout)  # noqa: E731
    return Agent(host, clock, Controller(Link(url, ca), provider, proof, clock))


def host_file(arguments: Iterable[str]) -> str:
    """Return the path given with --host-file, or the default. Raises Settings."""
    words = list(arguments)
    if not words:
        return (
            "C:\\ProgramData\\runner-agent\\host.json" if WINDOWS else "/etc/runner-agent/host.json"
        )
    if len(words) != 2 or words[0] != "--host-file":
        raise Settings("usage: agent.py [--host-file PATH]")
    return words[1]


def refuse_second_boot(host: Host) -> None:
    """Raise PowerOff if a runner was started before: a machine runs one runner."""
    if os.path.lexists(host.marker):
        raise PowerOff("a runner was started on this machine before")


def main() -> int:
    """Run the agent, then power off. When this process ends, its service also powers off."""
    host = Host({})
    try:
        path = host_file(sys.argv[1:])
        host = Host(read_trusted(path) or {})
        refuse_second_boot(host)
        folder = os.path.dirname(path)
        agent = build(host, os.path.join(folder, "controller.json"))
        signal.signal(signal.SIGTERM, agent.stop)
        disarm(host.disarm)
        agent.live()
    except Stopped as reason:
        # systemd waits for this process, and then powers the machine off.
        say(f"stopped: {reason}")
        return 1
    except (PowerOff, Settings) as reason:
        say(f"powering off: {reason}")
    # The shutdown also stops this service, and must not wait for it.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    power_off(host.power_off)
    return 1


if __name__ == "__main__":
    sys.exit(main())
