"""Adds the keys of each kind of provider to the structure of fleet.yaml."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any

from pydantic import Field, create_model

from autoscaler.config.provider_kind import ProviderKind
from autoscaler.config.settings.fleet import ProviderSettings, Settings
from autoscaler.config.settings.scalars import write_duration
from autoscaler.config.settings.shapes import ProviderName, Section, SkuName
from autoscaler.config.settings.sku import LaunchOptionSettings, SkuSettings


@cache
def settings_type(kinds: tuple[ProviderKind, ...]) -> type[Settings]:
    """Return `Settings` with the keys of these kinds. Raises TypeError if two kinds share a key."""
    provider, sku = _provider_type(kinds), _sku_type(kinds)
    skus: Any = Mapping[SkuName, sku]  # type: ignore[valid-type]
    providers: Any = Mapping[ProviderName, provider]  # type: ignore[valid-type]
    return create_model(
        "Settings",
        __base__=Settings,
        __doc__=Settings.__doc__,
        providers=_changed(Settings, "providers", Annotated[providers, Field(min_length=1)]),
        skus=_changed(Settings, "skus", Annotated[skus, Field(min_length=1)]),
    )


def json_schema(kinds: tuple[ProviderKind, ...]) -> str:
    """Return the JSON Schema of fleet.yaml, for editors."""
    schema = settings_type(kinds).model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "fleet.yaml"
    for section in (schema, *schema["$defs"].values()):
        for key in section.get("properties", {}).values():
            # The default of a duration is in seconds; in the file it is text.
            if isinstance(key.get("default"), float) and key.get("type") == "string":
                key["default"] = write_duration(key["default"])
    return json.dumps(schema, indent=2)


def _provider_type(kinds: Sequence[ProviderKind]) -> type[ProviderSettings]:
    sections: dict[str, Any] = {
        # The type excludes None, so that a key without a value is an error.
        kind.key: (kind.section, Field(None, description=kind.about))
        for kind in kinds
    }
    if len(sections) < len(kinds):
        raise TypeError("two kinds of providers have the same key")
    return create_model(
        "ProviderSettings", __base__=ProviderSettings, __doc__=ProviderSettings.__doc__, **sections
    )


def _option_type(kinds: Sequence[ProviderKind]) -> type[LaunchOptionSettings]:
    keys = [key for kind in kinds for key in kind.option_keys]
    if len(set(keys)) < len(keys):
        raise TypeError(f"two kinds of providers share a key of launch options: {sorted(keys)}")
    # The last base comes first in the order of keys.
    bases = tuple(kind.option for kind in reversed(kinds))
    return create_model(
        "LaunchOptionSettings", __base__=bases, __doc__=LaunchOptionSettings.__doc__
    )


def _sku_type(kinds: Sequence[ProviderKind]) -> type[SkuSettings]:
    options: Any = tuple[_option_type(kinds), ...]  # type: ignore[misc]
    bases = tuple(kind.sku for kind in kinds if kind.sku is not SkuSettings)
    return create_model(
        "SkuSettings",
        __base__=bases or SkuSettings,
        __doc__=SkuSettings.__doc__,
        launch_options=_changed(
            SkuSettings, "launch_options", Annotated[options, Field(min_length=1)]
        ),
    )


def _changed(section: type[Section], name: str, annotation: Any) -> Any:
    """Return a field's definition with another type, and the same key and description."""
    field = section.model_fields[name]
    return annotation, Field(alias=field.alias, description=field.description)
