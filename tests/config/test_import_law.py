"""For any scale-config.yml, each key is either converted or reported, exactly once."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.cli import _hardware_of
from autoscaler.config import ConfigurationError, load
from autoscaler.config.importing.conversion import Imported, import_scale_config
from autoscaler.config.importing.runner_keys import ImportOptions
from autoscaler.config.importing.runner_types import prefixed
from autoscaler.config.problems import dotted
from autoscaler.model.catalogue import OperatingSystem
from autoscaler.providers.registry import provider_kinds
from tests.config.fleet_file import filled, unserved

IMAGES = {OperatingSystem.LINUX: "mine-*|self", OperatingSystem.WINDOWS: "win-*|self"}

ODD = st.sampled_from(
    [None, True, -1, 0, 2.5, "", "x y", "undefined", "{", [], ["a"], {}, {"a": 1}]
)
GOOD: dict[str, st.SearchStrategy[Any]] = {
    "instance_type": st.sampled_from(["c5.large"] * 4 + ["g5.xlarge", "m7g.large", "z9.mega"]),
    "os": st.sampled_from(["linux"] * 5 + ["windows", "macos"]),
    "disk_size": st.integers(1, 70_000),
    "is_ephemeral": st.booleans(),
    "max_available": st.integers(-1, 2_000_000),
    "min_available": st.integers(-1, 9),
    "ami": st.sampled_from(["al2023*", "mine (new)|self", "a|123456789012"] * 2 + ["a|b|c", "a{"]),
    "ami_experiment": st.fixed_dictionaries(
        {"ami": st.sampled_from(["next-*", "n|self", "{"]), "percentage": st.integers(-1, 101)},
        optional={"until": st.just("friday")},
    ),
    "labels": st.lists(
        st.sampled_from(["fast", "Gpu", "GPU", "linux", "a b", 7]), max_size=4, unique=True
    ),
    "spot": st.booleans(),
}
MOSTLY = {key: st.one_of(*[good] * 6, ODD) for key, good in GOOD.items()}
NEEDED = ("instance_type", "os")
KEYS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {key: GOOD[key] for key in NEEDED},
    optional={key: MOSTLY[key] for key in GOOD if key not in NEEDED},
)
INCOMPLETE: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({}, optional=GOOD)
OVERRIDES = st.fixed_dictionaries({}, optional=MOSTLY)
VARIANTS = st.one_of(
    st.dictionaries(
        st.sampled_from(["am2", "canary", "big", "a b"]),
        st.one_of(OVERRIDES, OVERRIDES, KEYS, ODD),
        max_size=2,
    ),
    ODD,
)
VARIED = st.builds(lambda keys, variants: keys | {"variants": variants}, KEYS, VARIANTS)
BASE = st.builds(lambda keys, variants: keys | {"variants": variants}, INCOMPLETE, VARIANTS)
TYPE = st.one_of(KEYS, VARIED, BASE, KEYS, VARIED, INCOMPLETE, ODD)
LABELS = st.sampled_from(
    [f"linux.{letter}" for letter in "abcdefgh"]
    + ["Linux.A", "lf.linux.b", "am2.linux.a", "x.nonephemeral", "a b"]
)
FILES = st.builds(
    lambda types, other: {"runner_types": types} | other,
    st.dictionaries(LABELS, TYPE, min_size=1, max_size=4),
    st.sampled_from([{}, {"notes": [1]}]),
)

Path_ = tuple[str | int, ...]


def leaves(path: Path_, value: Any, depth: int = 0) -> Iterator[tuple[Path_, Any]]:
    """Return the keys of a type or variant, with those inside lists of labels and experiments."""
    if not isinstance(value, dict) or not value:
        yield path, value
        return
    for key, below in value.items():
        if key == "variants" and depth == 0 and isinstance(below, dict) and below:
            for name, variant in below.items():
                yield from leaves((*path, key, name), variant, 1)
        elif key == "ami_experiment" and isinstance(below, dict) and below:
            yield from (((*path, key, inner), at) for inner, at in below.items())
        elif key == "labels" and isinstance(below, list) and below:
            yield from (((*path, key, index), at) for index, at in enumerate(below))
        else:
            yield (*path, key), below


def image(text: str) -> dict[str, str]:
    name, _, owner = text.partition("|")
    return {"name": name, "owner": owner or "amazon"}


def stands_in(sku: Mapping[str, Any], key: str, below: Path_, value: Any) -> bool:
    """Return True if a SKU has the meaning of a key of the file."""
    plain: dict[str, Callable[[], bool]] = {
        "instance_type": lambda: bool(sku["on"][0]["instance_types"] == [value]),
        "os": lambda: bool(sku.get("os", "linux") == value),
        "disk_size": lambda: bool(sku["disk_gb"] == value),
        "is_ephemeral": lambda: value is True,
        "max_available": lambda: bool(sku["max_machines"] == value),
        "min_available": lambda: bool(sku["idle"] == {"min": value}),
        "ami": lambda: bool(image(value).items() <= sku["image"].items()),
        "labels": lambda: value == [] or value in sku["labels"],
    }
    if key != "ami_experiment":
        return plain[key]()
    canary = sku["image"]["canary"]
    return bool(
        canary["percent"] == value
        if below == ("percentage",)
        else image(value).items() <= canary.items()
    )


def is_plainly_good(key: str, value: Any) -> bool:
    """Return True if the key must be converted whenever its type is."""
    if key == "disk_size":
        return type(value) is int and 0 < value <= 65_536
    if key == "max_available":
        return type(value) is int and 0 < value <= 1_000_000
    return key in {"instance_type", "os", "ami"} or (key == "labels" and value == "fast")


def places_of_types(file: Mapping[str, Any]) -> Iterator[Path_]:
    """Return the paths of types and variants."""
    for label, keys in file["runner_types"].items():
        yield ("runner_types", label)
        variants = keys.get("variants") if isinstance(keys, dict) else None
        for name in variants if isinstance(variants, dict) else ():
            yield ("runner_types", label, "variants", name)


def accounted(file: Mapping[str, Any]) -> list[str]:
    found = [
        leaf
        for label, keys in file["runner_types"].items()
        for leaf, _ in leaves(("runner_types", label), keys)
    ]
    return sorted([*(dotted(leaf) for leaf in found), *(key for key in file if key == "notes")])


def imported(source: Path, prefix: str) -> tuple[str, Imported] | list[str]:
    """Return output and report, or, if no type can be a SKU, the keys of the problems."""
    try:
        return import_scale_config(
            source, ImportOptions(prefix, "east", IMAGES), _hardware_of, whole=True
        )
    except ConfigurationError as error:
        return [one.key for one in error.problems]


@pytest.mark.case(
    "scale-config.yml: every type and variant becomes a SKU",
    topic="Operators' files",
    source="pytorch/test-infra scale-config.yml",
)
@settings(max_examples=200, deadline=None)
@given(file=FILES, prefix=st.sampled_from(["", "lf.", "lf.c."]))
def test_each_key_is_either_converted_or_reported(
    tmp_path_factory: pytest.TempPathFactory, file: dict[str, Any], prefix: str
) -> None:
    folder = tmp_path_factory.getbasetemp()
    source, target = folder / "scale-config.yml", folder / "fleet.yaml"
    source.write_text(yaml.safe_dump(file, sort_keys=False))
    outcome = imported(source, prefix)
    if isinstance(outcome, list):
        check_reported(file, prefix, (), outcome)
        return
    text, account = outcome
    reported = [one.key for one in account.reported]
    assert not set(account.carried) & set(reported)
    check_reported(file, prefix, account.carried, reported)
    assert all(one.line >= 1 and one.why for one in account.reported)
    whole = {one.key for one in account.reported if one.why == "not a runner type"}
    assert whole <= {dotted(path) for path in places_of_types(file)}

    target.write_text(filled(text))
    configuration = load(target, provider_kinds(), files=False)
    assert unserved(configuration, files=False) == ()
    assert list(configuration.settings.skus) == list(account.skus)
    check_carried(file, prefix, account)


def merged(
    file: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, Path_, dict[str, tuple[Path_, Any]]]]:
    """Yield each type and variant: its label, its path, and its keys with path and value."""
    for label, keys in file["runner_types"].items():
        base = keys if isinstance(keys, dict) else {}
        at: Path_ = ("runner_types", label)
        own = {key: ((*at, key), value) for key, value in base.items() if key != "variants"}
        yield prefixed(label, prefix), at, own
        variants = base.get("variants")
        for name, overrides in variants.items() if isinstance(variants, dict) else ():
            below = (*at, "variants", name)
            given = overrides if isinstance(overrides, dict) else {}
            changed = {key: ((*below, key), value) for key, value in given.items()}
            yield prefixed(label, prefix, name), below, own | changed


def check_reported(
    file: Mapping[str, Any], prefix: str, carried: Sequence[str], reported: Sequence[str]
) -> None:
    """Check that each key is reported once, and each type that lacks a required key."""
    keys = accounted(file)
    named = [*carried, *reported]
    types = {dotted(path) for path in places_of_types(file)} - set(keys)
    assert sorted(key for key in named if key not in types) == keys
    assert max(Counter(named).values()) == 1
    for _, place, own in merged(file, prefix):
        needed = [dotted(own[key][0]) for key in NEEDED if key in own]
        if len(needed) < len(NEEDED):
            assert {dotted(place), *needed} & set(reported), place


def check_carried(file: Mapping[str, Any], prefix: str, account: Imported) -> None:
    """Check that each converted key is in every SKU of its type or variant."""
    carried, shown = set(account.carried), set()
    found = list(merged(file, prefix))
    claims = Counter(label.lower() for label, _, _ in found)
    for label, place, keys in found:
        sku = account.skus.get(label)
        for key, (path, value) in keys.items() if sku is not None else ():
            for leaf, at in leaves((), {key: value}):
                where = dotted((*path, *leaf[1:]))
                shown.add(where)
                if claims[label.lower()] > 1:
                    continue  # The first usable one has it, which another test shows.
                if is_plainly_good(key, at):
                    assert where in carried, where
                if where in carried:
                    assert sku is None or stands_in(sku, key, leaf[1:], at), where
        shown.add(dotted(place))
    assert carried <= shown
