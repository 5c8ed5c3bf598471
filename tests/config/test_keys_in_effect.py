"""Each key of fleet.yaml is used: an accepted key without effect could promise protection that does not exist.

The modules below convert sections into the settings of the other rooms, or use a section as it is. A key counts
as used if they read its field. A name that several sections share, such as `image`, is read from at least as
many expressions. In a second step, the other modules read each field that the conversion fills. Modules that
only check or summarise the file do not count.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import autoscaler
from autoscaler.config import settings_type
from autoscaler.config.settings.sections import section_in
from autoscaler.config.settings.shapes import Section
from autoscaler.config.settings.sku import AccessSettings, SkuSettings
from autoscaler.providers.registry import provider_kinds

CODE = Path(autoscaler.__file__).parent
CONVERTERS = (
    "app/endpoints.py",
    "app/installations.py",
    "app/parts.py",
    "app/running.py",
    "app/translation.py",
    "config/catalogue.py",
    "config/configuration.py",
    "config/credentials.py",
    "config/load.py",
    "operator_commands/endpoint.py",
    "providers/*/*.py",
    "providers/ec2/launching/*.py",
    "providers/ec2/notices/*.py",
    "providers/kubernetes/manifest/*.py",
)
CONVERTED = (
    "github/settings.py",
    "model/jobs/runner_group_excess.py",
    "model/catalogue.py",
    "providers/*/settings.py",
    "server/listening/settings.py",
)
"""Modules with the dataclasses that the conversion fills."""

ELSEWHERE = {
    "ProviderSettings.ec2": "read as ProviderSettings.section",
    "ProviderSettings.kubernetes": "read as ProviderSettings.section",
    "SkuSettings.labels": "config/checks/unusual_values.py reads them for config/catalogue.py",
    "ServerSettings.insecure": "a permission that config/checks/contradictions.py asks for",
    "Accelerator.count": "sent to the agent as JSON",
    "Accelerator.models": "sent to the agent as JSON",
    "Accelerator.memory_gb": "sent to the agent as JSON",
    "Accelerator.driver_version": "sent to the agent as JSON",
}
"""Fields that no converter reads by name."""

Reads = Mapping[str, set[str]]
"""By attribute: the different expressions from which it is read, such as `sku.image`."""


def modules(*patterns: str) -> list[Path]:
    found = [sorted(CODE.glob(pattern)) for pattern in patterns]
    assert all(found), "a pattern matches no file"
    return [path for paths in found for path in paths]


def reads(paths: Iterable[Path]) -> Reads:
    found: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found[node.attr].add(ast.unparse(node))
    return found


def sections(root: type[Section]) -> Iterator[type[Section]]:
    """Yield a section and those inside it, each once."""
    waiting, known = [root], {root}
    while waiting:
        section = waiting.pop()
        yield section
        inner = [section_in(field.annotation) for field in section.model_fields.values()]
        new = [one for one in dict.fromkeys(inner) if one is not None and one not in known]
        waiting += new
        known.update(new)


def unread(root: type[Section], found: Reads) -> list[str]:
    """Return the fields of these sections that are not read, or not once for each section with the name."""
    named: dict[str, list[str]] = defaultdict(list)
    for section in sections(root):
        for field in section.model_fields:
            named[field].append(f"{section.__name__}.{field}")
    wanted = {field: [one for one in keys if one not in ELSEWHERE] for field, keys in named.items()}
    return [key for field, keys in wanted.items() if len(found[field]) < len(keys) for key in keys]


def unused(trees: Iterable[ast.Module], found: Reads) -> list[str]:
    """Return the fields of these modules' dataclasses that are not read."""
    return [
        f"{node.name}.{field.target.id}"
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if not found[field.target.id]
    ]


SETTINGS = settings_type(provider_kinds())
CONVERSION = reads(modules(*CONVERTERS))
USES = reads(set(modules("**/*.py")) - set(modules("config/**/*.py", "app/*.py", "cli.py")))


def test_the_conversion_reads_each_key() -> None:
    assert unread(SETTINGS, CONVERSION) == []


def test_other_modules_read_each_converted_setting() -> None:
    trees = [ast.parse(path.read_text()) for path in modules(*CONVERTED)]
    assert unused(trees, USES) == []


def test_each_exception_is_a_key() -> None:
    keys = {f"{one.__name__}.{field}" for one in sections(SETTINGS) for field in one.model_fields}
    assert set(ELSEWHERE) <= keys


class _Access(AccessSettings):
    sandboxed: bool = False
    labels: tuple[str, ...] = ()


class _Sku(SkuSettings):
    access: _Access = _Access()


def test_a_planted_key_without_effect_is_found() -> None:
    """Also if another section has a key of the same name, which is read."""
    found = unread(_Sku, CONVERSION)
    assert "_Access.sandboxed" in found
    assert "_Access.labels" in found
    assert "_Access.forks" not in found


def test_a_planted_setting_that_nothing_reads_is_found() -> None:
    tree = ast.parse("class Planted:\n    sandboxed: bool\n    labels: str\n")
    assert unused([tree], USES) == ["Planted.sandboxed"]


def test_a_key_that_the_conversion_stops_reading_is_found() -> None:
    without = {**CONVERSION, "fair_share": set[str]()}
    assert unread(SETTINGS, defaultdict(set, without)) == ["SkuSettings.fair_share"]
