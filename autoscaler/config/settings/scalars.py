"""The types of single values: durations, addresses, URLs, globs, names, schedules.

Each error says what is expected and how to correct it.
"""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, PlainValidator
from pydantic import WithJsonSchema as JsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from autoscaler.config.problems import show
from autoscaler.model.catalogue import NO_RERUN
from autoscaler.model.identifiers import Address, is_loopback

MAX_TEXT = 1024
MAX_DURATION = 365 * 24 * 3600.0

DURATION = r"^(?=[0-9])(?:[0-9]{1,6}d)?(?:[0-9]{1,6}h)?(?:[0-9]{1,6}m)?(?:[0-9]{1,9}s)?$"
_PARTS = re.compile(r"([0-9]{1,9})([dhms])")
_UNIT = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
TIME_ZONE_FIX = (
    "write a name of the IANA time zone database, such as America/New_York, Europe/Berlin or UTC"
)
_SAME_CITY = 0.86
"""Similarity from 0 to 1: `Berln` is more similar to Berlin, `Munich` less to `Zurich`."""
_PUBLIC_URL = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+(/[A-Za-z0-9._~/\-]*)?")
_PLAIN_URL = "use letters, digits, dots and - in the host, and also _ ~ / in the path"
_LABEL_BY_DEFAULT = {
    *("self-hosted", "linux", "windows", "macos", "x64", "arm64", "arm", "x86"),
    NO_RERUN,
}


def wrong(what: str, fix: str) -> PydanticCustomError:
    """Return a validation error with its fix."""
    return PydanticCustomError("wrong", "{what}", {"what": what, "fix": fix})


@dataclass(frozen=True, slots=True)
class Matching:
    """A text type: the whole text must match one pattern. `maximum` is in characters."""

    pattern: str
    expected: str
    fix: str
    maximum: int = 100

    def __get_pydantic_core_schema__(
        self, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return a schema that reads text and checks the pattern."""
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON Schema with the pattern."""
        return {**handler(schema), "pattern": f"^{self.pattern}$", "maxLength": self.maximum}

    def _check(self, value: str) -> str:
        if len(value) > self.maximum:
            raise wrong(f"is longer than {self.maximum} characters", "shorten it")
        if re.fullmatch(self.pattern, value) is None:
            raise wrong(f"{show(value)} is not {self.expected}", self.fix)
        return value


def parsed(
    parse: Callable[[str], object], pattern: str, *, bare_numbers: bool = False
) -> tuple[PlainValidator, JsonSchema]:
    """Return the annotations of a type that is written as text and read by `parse`.

    `bare_numbers`: also pass whole numbers without quotes to `parse`, for a better error.
    """

    def check(value: object) -> object:
        if bare_numbers and type(value) is int:
            value = str(value)
        if not isinstance(value, str):
            raise wrong(f"{show(value)} is not text", "write it in quotes")
        if len(value) > MAX_TEXT:
            raise wrong(f"is longer than {MAX_TEXT} characters", "shorten it")
        return parse(value)

    return PlainValidator(check), JsonSchema({"type": "string", "pattern": pattern})


def parse_duration(text: str) -> float:
    """Parse a duration such as `90s`, `10m`, `24h`, `7d` or `1h30m` into seconds."""
    if re.fullmatch(r"[0-9]{1,6}", text):
        raise wrong(f"{text} has no unit", f"write {text}s or {text}m, or use h or d")
    if re.fullmatch(DURATION, text) is None:
        fix = _duration_fix(text) or "write a number and a unit: 90s, 10m, 24h or 7d"
        raise wrong(f"{show(text)} is not a duration", fix)
    seconds = sum(int(number) * _UNIT[unit] for number, unit in _PARTS.findall(text))
    if seconds > MAX_DURATION:
        raise wrong(f"{show(text)} is longer than 365d", "write a shorter time")
    return seconds


def _duration_fix(text: str) -> str | None:
    """Return the fix for `24 h`, `30min`, `2 days` and `1w`, or None."""
    found = re.fullmatch(
        r"([0-9]{1,6})\s*(week|day|hour|hr|minute|min|second|sec|w|d|h|m|s)s?", text
    )
    if found is None:
        return None
    if found[2].startswith("w"):
        return f"write {7 * int(found[1])}d"
    return f"write {found[1]}{found[2][0]}"


def parse_positive_duration(text: str) -> float:
    """Parse a duration above 0."""
    seconds = parse_duration(text)
    if seconds == 0:
        raise wrong("is 0", "write a time longer than 0s")
    return seconds


def write_duration(seconds: float) -> str:
    """Write seconds in the largest unit without a remainder: 600 is `10m`, 86,400 is `24h`."""
    for unit in "hm":
        if seconds and seconds % _UNIT[unit] == 0:
            return f"{seconds / _UNIT[unit]:.0f}{unit}"
    return f"{seconds:.0f}s"


def parse_address(text: str) -> Address:
    """Parse `host:port` or `[::1]:port`."""
    fix = "write HOST:PORT, such as 0.0.0.0:8443 or [::]:8443"
    host, colon, port = text.rpartition(":")
    if not host and re.fullmatch(r"[0-9]{1,5}", port) and int(port) <= 65535:
        raise wrong(f"{text} has no host", f"write 0.0.0.0:{port}, or another host before it")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise wrong(f"{show(text)} has no port from 0 to 65535", fix)
    if host.startswith("[") and host.endswith("]"):
        try:
            return Address(str(ipaddress.IPv6Address(host[1:-1])), int(port))
        except ValueError:
            raise wrong(f"{show(host)} is not an IPv6 address", fix) from None
    if _HOST.fullmatch(host) is None:
        raise wrong(f"{show(host)} is not a host name or address", fix)
    return Address(host, int(port))


def parse_url(text: str) -> str:
    """Parse an http or https URL without credentials, query or fragment; drops a trailing slash."""
    fix = "write https://HOST[:PORT][/PATH]"
    if re.search(r"[\s\x00-\x1f\x7f]", text):
        raise wrong("contains blanks or control characters", fix)
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise wrong("is not a URL", fix) from None
    if "@" in url.netloc:
        # The text is not shown, because the part before the @ may be a password.
        raise wrong("contains a user or password", "leave out everything before the @")
    if re.fullmatch(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?", text):
        raise wrong(f"{show(text)} is no URL", f"write https://{text}")
    if url.scheme not in {"http", "https"} or not url.hostname or port == 0:
        raise wrong(f"{show(text)} is not an http or https URL", fix)
    if url.query or url.fragment:
        raise wrong(f"{show(text)} has a query or fragment", fix)
    return text.rstrip("/")


def parse_public_url(text: str) -> str:
    """Parse a URL for a machine's boot script, which allows only plain characters."""
    url = parse_url(text)
    if _PUBLIC_URL.fullmatch(url) is None:
        raise wrong(
            f"{show(text)} contains characters that a boot script cannot contain", _PLAIN_URL
        )
    return url


def parse_secure_url(text: str) -> str:
    """Parse a URL to which secrets are sent: https, or http to this host."""
    url = parse_url(text)
    if url.startswith("http://") and not is_loopback(urlsplit(url).hostname or ""):
        raise wrong(f"{show(text)} would send secrets without encryption", "write https://")
    return url


def check_glob(text: str) -> str:
    """Check a glob over `owner/name`, or `*` alone."""
    fix = 'write "OWNER/NAME", where * stands for any text, such as "acme/*"'
    if text == "*":
        return text
    owner, slash, name = text.partition("/")
    if not slash or not owner or not name or "/" in name:
        raise wrong(f"{show(text)} is not a glob over owner/name", fix)
    if not re.fullmatch(r"[A-Za-z0-9._*?\[\]!-]{1,200}", owner + name):
        raise wrong(f"{show(text)} contains characters that repository names cannot have", fix)
    return _without_unmatched_brackets(text, fix)


def check_branch_glob(text: str) -> str:
    """Check a glob over names of branches, without `refs/heads/`."""
    fix = 'write the name of a branch, where * stands for any text, such as "release/*"'
    if text.startswith("refs/"):
        raise wrong(f"{show(text)} is a ref, not the name of a branch", fix)
    if not re.fullmatch(r"[^\s\x00-\x1f\x7f~^:\\]{1,250}", text):
        raise wrong(f"{show(text)} contains characters that branches cannot have", fix)
    return _without_unmatched_brackets(text, fix)


def _without_unmatched_brackets(text: str, fix: str) -> str:
    rest = re.sub(r"\[!?[^\[\]]+\]", "", text)
    if "[" in rest or "]" in rest:
        raise wrong(f"{show(text)} has an unmatched bracket", fix)
    return text


def check_label(text: str) -> str:
    """Return an extra label: 1 to 100 visible ASCII characters without a comma.

    Raises ValueError for another text, and for a default label of a runner.
    """
    fix = "write a label as `runs-on` spells it, at most 100 characters"
    if re.fullmatch(r"[!-+\--~]{1,100}", text) is None:
        raise wrong(f"{show(text)} is not a label", fix)
    return _no_default_label(
        text, "remove it; `unlabelled: true` serves jobs without a label of any SKU"
    )


def check_sku_name(text: str) -> str:
    """Return a SKU's name, which is a label. Raises ValueError for a default label of a runner."""
    return _no_default_label(text, "give it another name")


def _no_default_label(text: str, fix: str) -> str:
    if text.lower() in _LABEL_BY_DEFAULT:
        raise wrong(f"{show(text)} is a default label of all runners", fix)
    return text


def check_cron(text: str) -> str:
    """Check a cron expression: five fields, which match some date."""
    fix = 'write five fields (minute hour day month weekday), such as "0 7 * * 1-5"'
    if len(text) > 200 or len(text.split()) != 5:
        raise wrong(f"{show(text)} does not have five fields", fix)
    try:
        next(CronSim(text, datetime(2026, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        raise wrong(f"{show(text)} is not a cron expression ({error})", fix) from None
    except StopIteration:
        raise wrong(f"{show(text)} never matches a date", fix) from None
    return text


def check_timezone(text: str) -> str:
    """Check a name of the IANA time zone database."""
    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        raise wrong(f"{show(text)} is not a time zone", _time_zone_fix(text)) from None
    return text


def _time_zone_fix(text: str) -> str:
    """Suggest the zone of the same city, or of one spelled like it, or else none: a wrong zone is worse."""
    # Etc/GMT+2 is two hours behind GMT: the signs of these zones are inverted.
    zones = [zone for zone in available_timezones() if not zone.startswith("Etc/")]
    by_city: dict[str, str] = {}
    for zone in sorted(zones, key=lambda zone: (len(zone), zone)):
        by_city.setdefault(zone.rpartition("/")[2].casefold(), zone)
    city = text.strip().replace(" ", "_").rpartition("/")[2].casefold()
    found = get_close_matches(city[:60], by_city, n=1, cutoff=_SAME_CITY)
    return f"write {by_city[found[0]]}" if found else TIME_ZONE_FIX
