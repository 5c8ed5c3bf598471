"""What the checks see of a file with errors: its valid part, in which wrong keys have no value."""

import pytest

from autoscaler.config import Settings, settings_type
from autoscaler.config.reading.document import parse
from autoscaler.config.reading.validation import validate
from autoscaler.config.settings.shapes import NoValueError
from autoscaler.providers.registry import provider_kinds
from tests.config.fleet_file import MINIMAL, Folder, changed, on_ec2

BELOW = MINIMAL + "    max_machines: 5\n    idle: {min: 6}\n"
"""Every one of these files has a contradiction beside its error."""


def valid(text: str) -> Settings:
    """Return the valid part of a file that has an error."""
    settings, problems = validate(parse(text.encode(), "f"), settings_type(provider_kinds()))
    assert problems
    return settings


def test_a_wrong_key_has_no_value_and_the_others_have_theirs() -> None:
    sku = valid(MINIMAL + "    lifetime: long\n    labels: [a]\n    max_machines: 3\n").skus["gpu"]
    with pytest.raises(NoValueError):
        _ = sku.lifetime
    assert (sku.labels, sku.max_machines, sku.idle.timeout) == (("a",), 3, 600.0)
    assert "lifetime" in sku.model_fields_set


def test_a_missing_key_has_no_value() -> None:
    settings = valid(changed(("  listen: 127.0.0.1:0\n", "")))
    assert settings.server.public_url == "http://127.0.0.1:8443"
    with pytest.raises(NoValueError):
        _ = settings.server.listen


def test_a_list_with_a_wrong_entry_has_no_value_because_entries_are_named_by_position() -> None:
    option = on_ec2(valid(changed(("[g5.xlarge]", "[g5.xlarge, 7]"))).skus["gpu"])
    assert option.provider == "east"
    with pytest.raises(NoValueError):
        _ = option.instance_types


def test_launch_options_keep_their_positions() -> None:
    text = changed(("on: [{", "on: [7, {provider: east, instance_types: 7}, {"))
    nothing, east, whole = valid(text).skus["gpu"].launch_options
    with pytest.raises(NoValueError):
        _ = nothing.provider
    assert (east.provider, whole.provider) == ("east", "east")


def test_a_mapping_loses_its_wrong_entry() -> None:
    provider = valid(changed(("[sg-0a]}", "[sg-0a], tags: {team: ml, cost: 7}}"))).providers["east"]
    assert provider.section.model_dump()["tags"] == {"team": "ml"}


def test_a_provider_without_a_readable_section_has_no_kind() -> None:
    provider = valid(changed(("skus:", "  other: {ec2: 7}\nskus:"))).providers["other"]
    with pytest.raises(NoValueError):
        _ = provider.kind


@pytest.mark.parametrize(
    "error",
    [
        ("fleet: ci", "fleet: CI"),
        ("store: sqlite:///state.db", "stroe: sqlite:///state.db"),
        ("region: us-east-1, ", ""),
        ("[g5.xlarge]", "[7]"),
        ('{name: "runner-*"}', "7"),
        ("providers:", "skuz: 7\nproviders:"),
        ("  gpu:\n", "  broken: 7\n  gpu:\n"),
    ],
)
def test_an_error_elsewhere_hides_no_contradiction(folder: Folder, error: tuple[str, str]) -> None:
    found = {one.key: one.what for one in folder.problems(BELOW.replace(*error))}
    assert found["skus.gpu.idle.min"] == "6 is more than max_machines, 5"
    assert len(found) > 1
