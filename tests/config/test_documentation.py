"""docs/configuration.md, the example file and the JSON Schema agree with the code."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from autoscaler.config import json_schema, settings_type
from autoscaler.config.reading.document import parse
from autoscaler.config.settings.scalars import write_duration
from autoscaler.config.settings.sections import container_in, keys, section_in
from autoscaler.config.settings.shapes import Section
from autoscaler.providers.registry import provider_kinds
from tests.config.fleet_file import EXAMPLE

SETTINGS = settings_type(provider_kinds())
DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"
ROW = re.compile(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]*) \| ([^|]+) \|$", re.MULTILINE)


def fields(section: type[Section], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every key of fleet.yaml as the documentation writes it, with its field."""
    for key, field in keys(section).items():
        container = container_in(field.annotation)
        inner = section_in(field.annotation)
        path = prefix + key
        yield path, field
        if inner is not None:
            mark = "" if container is None else "[]" if container is tuple else ".<name>"
            yield from fields(inner, f"{path}{mark}.")


def written_default(field: FieldInfo) -> str:
    """A default as the documentation writes it: empty where there is none to write."""
    default: Any = field.get_default(call_default_factory=True)
    if field.is_required():
        return "required"
    if default is None or isinstance(default, Section) or default in ((), {}):
        return ""
    if isinstance(default, float) and "write_duration" in repr(field.metadata):
        return f"`{write_duration(default)}`"
    if isinstance(default, float):
        return f"`{default:g}`"
    if isinstance(default, tuple):
        return f"`[{', '.join(json.dumps(part) if part == '*' else part for part in default)}]`"
    return f"`{json.dumps(default) if isinstance(default, bool) else default}`"


def documented() -> dict[str, tuple[str, str]]:
    """Key to type and default, as the documentation has them."""
    return {row[0]: (row[1], row[2]) for row in ROW.findall(DOCUMENT.read_text())}


def test_every_key_is_documented_and_no_other() -> None:
    assert list(documented()) == [path for path, _ in fields(SETTINGS)]


def test_the_documented_defaults_are_the_real_ones() -> None:
    real = {path: written_default(field) for path, field in fields(SETTINGS)}
    assert {path: default for path, (_, default) in documented().items()} == real


def test_every_key_has_a_description_for_editors() -> None:
    assert [path for path, field in fields(SETTINGS) if not field.description] == []


def test_every_key_of_the_example_is_in_the_schema() -> None:
    schema = json.loads(json_schema(provider_kinds()))
    assert schema["additionalProperties"] is False
    assert set(parse(EXAMPLE.read_bytes(), "f").content) <= set(schema["properties"])
    assert schema["$defs"]["Idle"]["properties"]["timeout"]["default"] == "10m"
    assert schema["$defs"]["Idle"]["properties"]["max_age"]["default"] == "24h"


def test_the_schemas_duration_pattern_agrees_with_the_reader() -> None:
    pattern = json.loads(json_schema(provider_kinds()))["$defs"]["SkuSettings"]["properties"][
        "lifetime"
    ]["pattern"]
    assert all(re.search(pattern, good) for good in ("90s", "10m", "1h30m", "7d"))
    assert not any(re.search(pattern, bad) for bad in ("", "10", "m", "1m1h", "-1s", "1.5h"))
