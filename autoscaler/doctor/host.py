"""Checks the controller's own host: its files, disk, certificate, names, limits, and whether it answers."""

import asyncio
import json
import os
import resource
import socket
import ssl
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aiohttp

from autoscaler.app.preflight import load_for_service
from autoscaler.app.translation import server_settings
from autoscaler.config import Configuration, ConfigurationError, Problem
from autoscaler.config.examinations import Check, Examination, fine, skipped, unknown, wrong
from autoscaler.config.files.pem import certificates, read_pem
from autoscaler.config.files.regular_files import UnusableFileError
from autoscaler.controller.ports.store import StoreError
from autoscaler.github.requests.transport import proxy_for
from autoscaler.model.identifiers import Seconds
from autoscaler.model.wording import counted, duration
from autoscaler.store.opening import is_shared, open_upkeep

if TYPE_CHECKING:
    from autoscaler.store.postgresql.inspection import Inspection

GROUP = "Host"
LEAST_FREE = 1 << 30
LEAST_SHARE = 0.1
"""Free bytes, and the free share of a disk, below which the store's disk may soon be full."""

OLD_BACKUP: Seconds = 3 * 86_400.0
"""The age of a daily backup after which at least two have failed."""

LEAST_VERSION = 14
"""The oldest PostgreSQL that its project maintains (postgresql.org/support/versioning)."""

_MOST_ANSWER = 64 * 1024
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Readiness:
    """The answer of /readyz: its status, and the reasons in it; or why there is none."""

    status: int
    reasons: tuple[str, ...] = ()
    failure: str = ""


def examinations(configuration: Configuration, within: Seconds) -> Iterator[Examination]:
    """Return the checks of this host. The controller has most of `within` seconds to answer."""
    settings = configuration.settings
    hosts = {
        urlsplit(settings.server.public_url).hostname,
        urlsplit(settings.github.api_url).hostname,
    }

    async def files() -> list[Check]:
        return await asyncio.to_thread(_files, configuration)

    async def disk() -> list[Check]:
        return [await asyncio.to_thread(_disk, configuration.sqlite_file())]

    async def database() -> list[Check]:
        if not is_shared(configuration.store_url()):
            return []
        return [await asyncio.to_thread(_database, configuration.store_url())]

    async def names() -> list[Check]:
        return [await _name(host) for host in sorted(filter(None, hosts))]

    async def limits() -> list[Check]:
        limit, wanted = _file_limit(), server_settings(configuration)
        allowed = wanted.within(limit)
        return [judge_open_files(limit, allowed.max_connections, wanted.max_connections)]

    async def answers() -> list[Check]:
        url = settings.server.public_url
        found = await _readiness(configuration, 0.8 * within)
        return [judge_readiness(url, found, str(configuration.path))]

    async def backup() -> list[Check]:
        return [await asyncio.to_thread(_backup, configuration)]

    for name, run in (
        ("fleet.yaml", files),
        ("disk", disk),
        ("backup", backup),
        ("database", database),
        ("names", names),
        ("open files", limits),
        ("controller", answers),
    ):
        yield Examination(GROUP, name, run)


def judge_problems(problems: Sequence[Problem], file: str) -> list[Check]:
    """Judge what `autoscaler check` finds: errors and warnings."""
    if not problems:
        return [fine("fleet.yaml", "valid, with usable files and a store that can be written")]
    return [
        wrong(
            f"fleet.yaml: {one.key or one.file}",
            one.what,
            "a warning of autoscaler check"
            if one.warning
            else "the controller cannot start with it",
            f"{one.fix}; then: autoscaler check {file}",
        )
        for one in problems
    ]


def judge_certificate(end: datetime, now: datetime) -> Check:
    """Judge how long the server's certificate is valid. `judge_problems` reports one that ends soon."""
    days = (end - now).days
    return fine("certificate", f"valid for {counted(max(days, 0), 'more day')}")


def judge_disk(folder: Path, free: int, size: int) -> Check:
    """Judge the free bytes of the disk with the store."""
    what = f"{free / _GIB:.1f} of {size / _GIB:.1f} GiB free in {folder}"
    if free < LEAST_FREE or free < LEAST_SHARE * size:
        why = "the controller stops when the store's disk is full"
        return wrong("disk", what, why, f"du -xh {folder} | sort -h | tail; or enlarge the disk")
    return fine("disk", what)


def judge_backup(age: Seconds | None, file: str) -> Check:
    """Judge how old the last backup of the store is, in seconds; None: none is known."""
    command = f"autoscaler store backup -c {file} FILE, each day: docs/deploy.md, A backup"
    if age is None:
        what = "no backup by `autoscaler store backup` is known; snapshots of the disk are not seen here"
        return unknown("backup", what, command)
    what = f"the last one is {duration(age)} old"
    if age > OLD_BACKUP:
        why = "after the loss of the disk, machines and jobs since then are not known"
        return wrong("backup", what, why, command)
    return fine("backup", what)


def judge_open_files(limit: int, connections: int, wanted: int) -> Check:
    """Judge the limit of open files by the connections that it allows: each ready machine has one."""
    what = f"this shell allows {limit:,}"
    if connections >= wanted:
        return fine("open files", what)
    why = f"the controller accepts {connections:,} connections of {wanted:,}, and refuses further machines"
    return wrong(
        "open files", what, why, "LimitNOFILE=65536 in the unit of the service (docs/deploy.md)"
    )


def judge_readiness(url: str, found: Readiness, file: str) -> Check:
    """Judge the controller's answer to /readyz at `server.public_url`."""
    if found.failure:
        return wrong(
            "controller",
            f"{url} does not answer: {found.failure}",
            "machines cannot get their runners",
            f"autoscaler serve -c {file}; if it runs, see its log: journalctl -u autoscaler -n 50",
        )
    if found.status != 200:
        said = "; ".join(found.reasons) or f"/readyz answers {found.status}"
        return wrong(
            "controller", f"it is not ready: {said}", "it launches nothing yet", "autoscaler status"
        )
    return fine("controller", f"ready at {url}")


def _files(configuration: Configuration) -> list[Check]:
    try:
        problems = load_for_service(configuration.path).warnings
    except ConfigurationError as error:
        problems = (*error.problems, *error.warnings)
    checks = judge_problems(problems, str(configuration.path))
    tls = configuration.settings.server.tls
    if tls is None:
        return [
            *checks,
            skipped("certificate", "server.tls is not set: a proxy has the certificate"),
        ]
    try:
        first = certificates(read_pem(configuration.file(tls.certificate_file)))[0]
    except (OSError, UnusableFileError):
        return checks  # one of the problems
    if any("tls" in one.key and "certificate" in one.key for one in problems):
        return checks
    return [*checks, judge_certificate(first.not_valid_after_utc, datetime.now(UTC))]


def _disk(store: Path | None) -> Check:
    if store is None:
        return skipped("disk", "the store is not a file")
    folder = store.parent.absolute()
    try:
        found = os.statvfs(folder)
    except OSError as error:
        return wrong(
            "disk",
            f"{folder} cannot be read: {error.strerror}",
            "the controller cannot open its store",
            f"install -d -m 700 {folder}",
        )
    used = found.f_blocks - found.f_bfree
    size = (used + found.f_bavail) * found.f_frsize
    return judge_disk(folder, found.f_bavail * found.f_frsize, size)


def _backup(configuration: Configuration) -> Check:
    if configuration.sqlite_file() is None:
        return skipped("backup", "the store is not a file")
    at = open_upkeep(configuration.store_url()).last_backup()
    return judge_backup(None if at is None else max(0.0, time.time() - at), str(configuration.path))


def _database(url: str) -> Check:
    # psycopg takes 0.3 s to import.
    from autoscaler.store.postgresql.inspection import inspect

    try:
        return judge_database(inspect(url))
    except StoreError as error:
        why = "no replica can lead: no machine is launched, and no webhook is stored"
        return wrong("database", str(error), why, "psql, with the URL of `store`, from this host")


def judge_database(found: "Inspection") -> Check:
    """Judge a PostgreSQL server that let this host sign in."""
    leader = "no replica leads" if found.leader is None else f"{found.leader} leads"
    what = f"PostgreSQL {found.version}; {leader}"
    if found.read_only:
        why = "a standby takes no writes"
        fix = "name the primary in `store`, or add target_session_attrs=read-write"
        return wrong("database", f"{what}; it takes no writes", why, fix)
    if found.version < LEAST_VERSION:
        why = f"PostgreSQL's project maintains {LEAST_VERSION} and later"
        return wrong("database", what, why, "upgrade the server")
    return fine("database", what if found.encrypted else f"{what}; the session is not encrypted")


async def _name(host: str) -> Check:
    name = f"name {host}"
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return wrong(
            name,
            f"it has no address here: {error.strerror}",
            "nothing that uses this name can be reached",
            f"getent hosts {host}; correct DNS, /etc/hosts or the URL in fleet.yaml",
        )
    return fine(name, ", ".join(sorted({str(one[4][0]) for one in found})[:3]))


def _file_limit() -> int:
    """Return the limit that the controller would have: it raises its own to the hard one."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


async def _readiness(configuration: Configuration, within: Seconds) -> Readiness:
    server = configuration.settings.server
    tls = server.tls
    trust = ssl.create_default_context()
    if tls is not None and tls.ca_file is not None:
        try:
            trust = ssl.create_default_context(cafile=configuration.file(tls.ca_file))
        except OSError as error:
            return Readiness(0, failure=f"{tls.ca_file}: {error.strerror or error}")
    url = f"{server.public_url.rstrip('/')}/readyz"
    timeout = aiohttp.ClientTimeout(total=within)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, ssl=trust, proxy=proxy_for(url), allow_redirects=False) as answer,
        ):
            body = await answer.content.read(_MOST_ANSWER)
            return Readiness(answer.status, _reasons(body))
    except TimeoutError:
        return Readiness(0, failure=f"no answer in {within:g} s")
    except aiohttp.ClientError as error:
        return Readiness(0, failure=str(error) or type(error).__name__)


def _reasons(body: bytes) -> tuple[str, ...]:
    try:
        found = json.loads(body)
    except ValueError:
        return ()
    reasons = found.get("reasons") if isinstance(found, dict) else None
    return tuple(map(str, reasons[:10])) if isinstance(reasons, list) else ()
