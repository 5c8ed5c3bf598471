"""Converts the keys of one runner type of a scale-config.yml into keys of a SKU.

The results are plain values of fleet.yaml, and only values that fleet.yaml accepts.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from autoscaler.config.importing.runner_types import EXPERIMENT, LABELS, Given, RunnerType
from autoscaler.config.problems import KeyPath, show
from autoscaler.config.reading.wording import sentence
from autoscaler.config.settings.shapes import (
    Count,
    Gibibytes,
    ImageName,
    ImageOwner,
    InstanceType,
    Label,
    Percent,
    Section,
)
from autoscaler.model.catalogue import Architecture, OperatingSystem


class Hardware(NamedTuple):
    """An instance type's architecture, and the name of the recipe's image for it, as `name|owner`."""

    arch: Architecture
    image: str


HardwareOf = Callable[[str, OperatingSystem], Hardware]
"""Looks up an instance type. Raises ValueError if it cannot be launched."""

DEFAULT_OWNER = "amazon"
"""The owner of an `ami` without an owner (terraform-aws-github-runner, `findAmiID`)."""

_NO_CANARY = "every launch uses the type's own image"
_OTHER_IS_WRONG = "skipped, because the experiment's other key is wrong"
_NOT_BOTH = "not an ami and a percentage"
_NEW_MACHINE = "this fleet starts a new machine for each job"


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """`prefix` goes before each SKU's name, not before `labels`; `provider` is the EC2 provider's name.

    `images` are for types without an `ami`, as `name|owner` by operating system. By default they get the image
    of the recipe that fits.
    """

    prefix: str
    provider: str
    images: Mapping[OperatingSystem, str]


class UnconvertibleError(ValueError):
    """A type that cannot become a SKU, because of the value at `path`."""

    def __init__(self, path: KeyPath, why: str) -> None:
        super().__init__(why)
        self.path = path


@dataclass(slots=True)
class Translation:
    """One type's SKU, and the result for each of the type's keys."""

    of_type: RunnerType
    sku: dict[str, Any] = field(default_factory=dict)
    carried: set[KeyPath] = field(default_factory=set)
    reported: dict[KeyPath, str] = field(default_factory=dict)
    assumed: str | None = None
    """The default image, if the type names none."""


def read(shape: Any, value: object) -> Any:
    """Return the value if fleet.yaml accepts it for this type. Raises ValueError with the reason."""
    try:
        return _adapter(shape).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        raise ValueError(sentence(error.errors(include_url=False)[0], Section)[0]) from None


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def parse_ami(text: object) -> dict[str, str]:
    """Parse an image given as `name|owner`; the default owner is Amazon. Raises ValueError."""
    name, bar, owner = read(str, text).partition("|")
    found = {"name": name.strip(), "owner": owner.strip() if bar else DEFAULT_OWNER}
    read(ImageName, found["name"])
    read(ImageOwner, found["owner"])
    return found


def translate(of_type: RunnerType, hardware_of: HardwareOf, options: ImportOptions) -> Translation:
    """Convert a type into a SKU. Raises UnconvertibleError if a required key is missing or invalid."""
    done = Translation(of_type, carried={of_type.path})
    _machine(of_type, hardware_of, options, done)
    for key, convert in _OPTIONAL.items():
        for given in of_type.keys[key].parts() if key in of_type.keys else ():
            try:
                convert(done, given)
            except ValueError as error:
                done.reported[given.path] = str(error)
            else:
                done.carried.add(given.path)
    if EXPERIMENT in of_type.keys:
        _experiment(of_type.keys[EXPERIMENT], done)
    for key in of_type.keys.keys() - _OPTIONAL.keys() - {"os", "instance_type", "ami", EXPERIMENT}:
        done.reported[of_type.keys[key].path] = "unknown key"
    return done


def _machine(
    of_type: RunnerType, hardware_of: HardwareOf, options: ImportOptions, done: Translation
) -> None:
    os = _required(of_type, "os", lambda value: read(OperatingSystem, value))
    kind = _required(of_type, "instance_type", lambda value: read(InstanceType, value))
    arch, image = _required(of_type, "instance_type", lambda _: hardware_of(kind, os))
    path = of_type.keys["instance_type"].path
    if os is OperatingSystem.WINDOWS and arch is Architecture.ARM64:
        raise UnconvertibleError(path, f"{kind} is arm64, and EC2 has no Windows for it")
    done.sku["on"] = [{"provider": options.provider, "instance_types": [kind]}]
    if os is not OperatingSystem.LINUX:
        done.sku["os"] = os.value
    if arch is not Architecture.X64:
        done.sku["arch"] = arch.value
    done.carried |= {path, of_type.keys["os"].path}
    if "ami" in of_type.keys:
        done.sku["image"] = _required(of_type, "ami", parse_ami)
        done.carried.add(of_type.keys["ami"].path)
    else:
        done.assumed = options.images.get(os, image)
        done.sku["image"] = parse_ami(done.assumed)


def _required(of_type: RunnerType, key: str, convert: Callable[[Any], Any]) -> Any:
    given = of_type.keys.get(key)
    if given is None:
        raise UnconvertibleError(of_type.path, f"has no {key}")
    try:
        return convert(given.value)
    except ValueError as error:
        raise UnconvertibleError(given.path, str(error)) from None


def _experiment(given: Given, done: Translation) -> None:
    """Convert an experiment into a canary, which needs both of its keys."""
    canary: dict[str, Any] = {}
    usable = []
    keys = given.keys()
    for key, part in keys.items():
        try:
            if key == "ami":
                canary |= parse_ami(part.value)
            elif key == "percentage":
                canary["percent"] = read(Percent, part.value)
            else:
                done.reported[part.path] = "unknown key"
                continue
        except ValueError as error:
            done.reported[part.path] = f"{error}: {_NO_CANARY}"
        else:
            usable.append(part.path)
    if len(usable) == 2:
        done.sku["image"] = done.sku["image"] | {"canary": canary}
        done.carried |= {*usable}
        return
    both = {"ami", "percentage"} <= keys.keys()
    for path in usable if keys else [given.path]:
        done.reported[path] = f"{_OTHER_IS_WRONG if both else _NOT_BOTH}: {_NO_CANARY}"


def _disk(done: Translation, given: Given) -> None:
    done.sku["disk_gb"] = _read_or_skip(Gibibytes, given)


def _max_available(done: Translation, given: Given) -> None:
    if type(given.value) is int and given.value <= 0:
        raise ValueError(f"{given.value} means no limit, so max_machines is omitted")
    done.sku["max_machines"] = _read_or_skip(Count, given)


def _min_available(done: Translation, given: Given) -> None:
    value, most = given.value, done.sku.get("max_machines")
    if type(value) is int and value <= 0:
        what = "means the default of PyTorch's fleet; no machine is kept ready"
        raise ValueError(f"{value} {what}")
    if type(value) is int and most is not None and value > most:
        raise ValueError(f"{value} is more than max_available, {most}: no machine is kept ready")
    done.sku["idle"] = {"min": _read_or_skip(Count, given)}


def _read_or_skip(shape: Any, given: Given) -> Any:
    try:
        return read(shape, given.value)
    except ValueError as error:
        raise ValueError(f"{error}: skipped") from None


def _label(done: Translation, given: Given) -> None:
    if given.path[-1] == LABELS:
        if given.value != []:
            raise ValueError(f"{show(given.value)} is not a list of labels")
        return
    label = read(Label, given.value)
    known = done.sku.get("labels", [])
    if label.lower() in (one.lower() for one in (done.of_type.label, *known)):
        raise ValueError(f"{show(label)} is already a label of the SKU")
    done.sku["labels"] = [*known, label]


def _ephemeral(done: Translation, given: Given) -> None:
    """Every runner of this fleet is ephemeral."""
    if given.value is False:
        raise ValueError(_NEW_MACHINE)
    if given.value is not True:
        raise ValueError(f"{show(given.value)} is not true or false")
    if "nonephemeral" in done.of_type.label.lower():
        raise ValueError(f"true contradicts the name; {_NEW_MACHINE}")


_OPTIONAL: Mapping[str, Callable[[Translation, Given], None]] = {
    "disk_size": _disk,
    "max_available": _max_available,
    "min_available": _min_available,  # after max_available, which it may not exceed
    LABELS: _label,
    "is_ephemeral": _ephemeral,
}
"""Sets keys of the SKU for the value of a key. Raises ValueError with the reason if it cannot."""
