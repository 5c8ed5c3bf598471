"""Suggests time zones for an unknown name: those of the same or a similarly spelled city.

Suggests none without such a match, because a schedule in a wrong zone runs at the wrong hour.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from zoneinfo import available_timezones

EXAMPLES = (
    "write a name of the IANA time zone database, such as America/New_York, Europe/Berlin or UTC"
)

_SHOWN = 3
_LONGEST = 60
_CLOSE = 0.85
"""Similarity from 0 to 1: `Berln` is more similar to Berlin, `Munich` less to `Zurich`."""
_SHORTEST_TYPO = 5
"""Letters: a shorter name is similar to too many others."""

_ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "America/Los_Angeles": (
        *("san_francisco", "seattle", "san_diego", "las_vegas", "palo_alto", "menlo_park"),
        *("mountain_view", "california", "pst", "pdt"),
    ),
    "America/Denver": ("salt_lake_city", "mdt"),
    "America/Chicago": ("houston", "dallas", "austin", "minneapolis", "cdt"),
    "America/New_York": ("boston", "atlanta", "miami", "philadelphia", "pittsburgh", "edt"),
    "America/Toronto": ("ottawa",),
    "America/Sao_Paulo": ("rio_de_janeiro", "brasilia"),
    "Europe/London": ("edinburgh", "manchester"),
    "Europe/Berlin": ("munich", "frankfurt", "hamburg", "cologne", "germany", "cest"),
    "Europe/Rome": ("milan", "turin", "italy"),
    "Europe/Madrid": ("barcelona", "spain"),
    "Europe/Paris": ("lyon", "marseille", "france"),
    "Europe/Zurich": ("geneva", "basel", "bern", "lausanne", "switzerland"),
    "Asia/Kolkata": ("india", "bangalore", "bengaluru", "mumbai", "delhi", "new_delhi"),
    "Asia/Shanghai": ("china", "beijing", "shenzhen", "hangzhou"),
    "Asia/Tokyo": ("osaka", "kyoto", "jst"),
    "Asia/Seoul": ("korea", "kst"),
    "Asia/Dubai": ("abu_dhabi",),
}
"""Cities, countries with one zone and abbreviations that the database lacks, by their zone. Ambiguous
ones, such as CST and IST, are omitted."""


def suggestion(text: str) -> str:
    """Return what to write instead of an unknown time zone."""
    known = sorted(available_timezones())
    wanted = text[:_LONGEST].strip().replace(" ", "_").casefold()
    area, _, city = wanted.rpartition("/")
    by_city: dict[str, list[str]] = {}
    for name in known:
        if name.startswith("Etc/"):
            continue  # Their signs are inverted: Etc/GMT+2 is two hours behind GMT.
        by_city.setdefault(name.rpartition("/")[2].casefold(), []).append(name)
    found = [name for name in known if name.casefold() == wanted]
    found = found or _ordered(by_city.get(city, ()), area)
    found = found or [zone for zone, names in _ELSEWHERE.items() if city in names]
    if not found and len(city) >= _SHORTEST_TYPO:
        close = get_close_matches(city, by_city, n=1, cutoff=_CLOSE)
        found = _ordered(by_city[close[0]], area) if close else []
    return f"write {' or '.join(found[:_SHOWN])}" if found else EXAMPLES


def _ordered(names: Iterable[str], area: str) -> list[str]:
    """Return the names of the given area, or else all; short names, the usual ones, first."""
    every = sorted(names, key=lambda name: (len(name), name))
    return [name for name in every if name.casefold().startswith(f"{area}/")] or every
