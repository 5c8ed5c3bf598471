"""Reads quantities of Kubernetes, such as `500m` or `56Gi`. Pure.

Source: Kubernetes API reference, "Quantity".
"""

import contextlib
import math
import re
from collections.abc import Mapping
from decimal import Decimal, DecimalException
from typing import Any

_FORM = re.compile(r"[+-]?[0-9.]++[eEinumkKMGTP]*+[-+]?[0-9]*+")
"""What the API server reads (apimachinery, `pkg/api/resource/quantity.go`). It ignores spaces around it."""

_SUFFIXES = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}


def quantity(text: object) -> Decimal:
    """Return the value of a quantity. Raises ValueError."""
    words = str(text).strip()
    if not _FORM.fullmatch(words):
        raise ValueError(f"{words!r} is not a quantity")
    # `12E` is 12 exa. `12e3` and `12E3` have an exponent, which Decimal reads, and no suffix.
    number = words.rstrip("numkKMGTPEi")
    suffix = words[len(number) :]
    try:
        found = Decimal(number) * _SUFFIXES[suffix]
    except (DecimalException, KeyError):
        raise ValueError(f"{words!r} is not a quantity") from None
    if not found.is_finite() or found < 0:
        raise ValueError(f"{words!r} is not a quantity of a resource")
    return found


def bytes_of(shared_memory: str | None, memory: object) -> int | None:
    """Return the bytes of /dev/shm: as configured, or half of a memory limit, or None without either."""
    if shared_memory is not None:
        return int(quantity(shared_memory))
    with contextlib.suppress(ValueError):
        # A limit of 0 is none.
        return int(quantity(memory)) // 2 or None
    return None


def units(value: object) -> int:
    """Return the whole units of a quantity, or 0 if the value is none."""
    try:
        return math.floor(quantity(value))
    except ValueError:
        return 0


def devices(container: Mapping[str, Any]) -> dict[str, int]:
    """Return the extended resources in the limits of a container, such as `nvidia.com/gpu`, by name."""
    limits = (container.get("resources") or {}).get("limits") or {}
    return {name: units(value) for name, value in limits.items() if "/" in name}
