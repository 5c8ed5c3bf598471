"""Converts the keys of one runner type of a scale-config.yml into keys of a SKU.

The results are plain values of fleet.yaml, and only values that fleet.yaml accepts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from autoscaler.config.importing.runner_types import EXPERIMENT, LABELS, Given, RunnerType
from autoscaler.config.importing.values import read
from autoscaler.config.problems import KeyPath, show
from autoscaler.config.settings.shapes import (
    Count,
    Gibibytes,
    ImageName,
    ImageOwner,
    InstanceType,
    Label,
    Percent,
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

_NO_CAP = "means no limit, so max_machines is omitted"
_NO_CANARY = "every launch uses the type's own image"
_NO_MINIMUM = "means the default of PyTorch's fleet; no machine is kept ready"


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

    sku: dict[str, Any] = field(default_factory=dict)
    carried: set[KeyPath] = field(default_factory=set)
    reported: dict[KeyPath, str] = field(default_factory=dict)
    assumed: str | None = None
    """The default image, if the type names none."""


def translate(of_type: RunnerType, hardware_of: HardwareOf, options: ImportOptions) -> Translation:
    """Convert a type into a SKU. Raises UnconvertibleError if a required key is missing or invalid."""
    done = Translation(carried={of_type.path})
    _machine(of_type, hardware_of, options, done)
    for key, meaning in _MEANINGS.items():
        if key in of_type.keys:
            meaning(of_type, of_type.keys[key], done)
    for key in of_type.keys.keys() - _MEANINGS.keys() - {"os", "instance_type", "ami"}:
        done.reported[of_type.keys[key].path] = "unknown key"
    return done


def parse_ami(text: str) -> dict[str, str]:
    """Parse an image given as `name|owner`; the default owner is Amazon. Raises ValueError."""
    name, bar, owner = text.partition("|")
    found = {"name": name.strip(), "owner": owner.strip() if bar else DEFAULT_OWNER}
    read(ImageName, found["name"])
    read(ImageOwner, found["owner"])
    return found


def _machine(
    of_type: RunnerType,
    hardware_of: HardwareOf,
    options: ImportOptions,
    done: Translation,
) -> None:
    os = _required(of_type, "os", OperatingSystem)
    kind = _required(of_type, "instance_type", InstanceType)
    path = of_type.keys["instance_type"].path
    try:
        arch, image = hardware_of(kind, os)
    except ValueError as error:
        raise UnconvertibleError(path, str(error)) from None
    if os is OperatingSystem.WINDOWS and arch is Architecture.ARM64:
        raise UnconvertibleError(path, f"{kind} is arm64, and EC2 has no Windows for it")
    done.sku["on"] = [{"provider": options.provider, "instance_types": [kind]}]
    if os is not OperatingSystem.LINUX:
        done.sku["os"] = os.value
    if arch is not Architecture.X64:
        done.sku["arch"] = arch.value
    done.carried |= {path, of_type.keys["os"].path}
    ami = of_type.keys.get("ami")
    if ami is None:
        done.assumed = options.images.get(os, image)
        done.sku["image"] = parse_ami(done.assumed)
        return
    try:
        done.sku["image"] = parse_ami(read(str, ami.value))
    except ValueError as error:
        raise UnconvertibleError(ami.path, str(error)) from None
    done.carried.add(ami.path)


def _required(of_type: RunnerType, key: str, shape: Any) -> Any:
    given = of_type.keys.get(key)
    if given is None:
        raise UnconvertibleError(of_type.path, f"has no {key}")
    try:
        return read(shape, given.value)
    except ValueError as error:
        raise UnconvertibleError(given.path, str(error)) from None


def _experiment(of_type: RunnerType, given: Given, done: Translation) -> None:  # noqa: ARG001
    entries = given.value if isinstance(given.value, dict) else {}
    parts = {key: Given((*given.path, key), one) for key, one in entries.items()}
    ami, percentage = parts.pop("ami", None), parts.pop("percentage", None)
    for part in parts.values():
        done.reported[part.path] = "unknown key"
    if ami is None or percentage is None:
        one = ami or percentage or given
        if one is not given or not parts:
            done.reported[one.path] = f"not an ami and a percentage: {_NO_CANARY}"
        return
    errors = {one.path: error for one in (ami, percentage) if (error := _canary_error(one))}
    for one in (ami, percentage) if errors else ():
        why = errors.get(one.path) or "skipped, because the experiment's other key is wrong"
        done.reported[one.path] = f"{why}: {_NO_CANARY}"
    if errors:
        return
    canary = parse_ami(ami.value) | {"percent": percentage.value}
    done.sku["image"] = done.sku["image"] | {"canary": canary}
    done.carried |= {ami.path, percentage.path}


def _canary_error(given: Given) -> str | None:
    try:
        if given.path[-1] == "ami":
            parse_ami(read(str, given.value))
        else:
            read(Percent, given.value)
    except ValueError as error:
        return str(error)
    return None


def _disk(of_type: RunnerType, given: Given, done: Translation) -> None:  # noqa: ARG001
    _copy(given, Gibibytes, "disk_gb", done)


def _max_available(of_type: RunnerType, given: Given, done: Translation) -> None:  # noqa: ARG001
    value = given.value
    if type(value) is int and value <= 0:
        done.reported[given.path] = f"{value} {_NO_CAP}"
        return
    _copy(given, Count, "max_machines", done)


def _min_available(of_type: RunnerType, given: Given, done: Translation) -> None:  # noqa: ARG001
    value, most = given.value, done.sku.get("max_machines")
    if type(value) is int and value <= 0:
        done.reported[given.path] = f"{value} {_NO_MINIMUM}"
    elif type(value) is int and most is not None and value > most:
        done.reported[given.path] = (
            f"{value} is more than max_available, {most}: no machine is kept ready"
        )
    elif _copy(given, Count, "min", done):
        done.sku["idle"] = {"min": done.sku.pop("min")}


def _copy(given: Given, shape: Any, key: str, done: Translation) -> bool:
    try:
        done.sku[key] = read(shape, given.value)
    except ValueError as error:
        done.reported[given.path] = f"{error}: skipped"
        return False
    done.carried.add(given.path)
    return True


def _labels(of_type: RunnerType, given: Given, done: Translation) -> None:
    if not isinstance(given.value, list):
        done.reported[given.path] = f"{show(given.value)} is not a list of labels"
        return
    taken = {of_type.label.lower()}
    kept: list[str] = []
    for index, one in enumerate(given.value):
        path = (*given.path, index)
        try:
            label = read(Label, one)
        except ValueError as error:
            done.reported[path] = str(error)
            continue
        if label.lower() in taken:
            done.reported[path] = f"{show(label)} is already a label of the SKU"
            continue
        taken.add(label.lower())
        kept.append(label)
        done.carried.add(path)
    if kept:
        done.sku["labels"] = kept
    if not given.value:
        done.carried.add(given.path)


def _ephemeral(of_type: RunnerType, given: Given, done: Translation) -> None:
    value = given.value
    if value is False:
        done.reported[given.path] = "this fleet starts a new machine for each job"
    elif value is not True:
        done.reported[given.path] = f"{show(given.value)} is not true or false"
    elif "nonephemeral" in of_type.label.lower():
        done.reported[given.path] = (
            "true contradicts the name; this fleet starts a new machine for each job"
        )
    else:
        done.carried.add(given.path)  # every runner of this fleet is ephemeral


_MEANINGS: Mapping[str, Callable[[RunnerType, Given, Translation], None]] = {
    EXPERIMENT: _experiment,
    "disk_size": _disk,
    "max_available": _max_available,
    "min_available": _min_available,  # after max_available, which it may not exceed
    LABELS: _labels,
    "is_ephemeral": _ephemeral,
}
