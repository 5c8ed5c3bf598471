"""Finds values of fleet.yaml that are not written yet: placeholders, templates, samples, empty ones."""

import re
from collections.abc import Iterator, Mapping

from autoscaler.config.problems import KeyPath, Problem, show
from autoscaler.config.reading.document import Document, values_in
from autoscaler.config.reading.wording import no_value
from autoscaler.config.settings.sections import keys, section_at
from autoscaler.config.settings.shapes import Section

APP_ID = "YOUR-APP-ID"
ORGANIZATION = "YOUR-ORGANIZATION"
HOST = "YOUR-HOST"
SUBNET = "YOUR-SUBNET-ID"
SECURITY_GROUP = "YOUR-SECURITY-GROUP-ID"

_FIXES: Mapping[str, str] = {
    APP_ID: "write the GitHub App's ID, from the App's settings page",
    ORGANIZATION: "write the organization to serve",
    HOST: "write the host name by which machines reach the controller",
    SUBNET: "write the id of a subnet, such as subnet-0123456789abcdef0",
    SECURITY_GROUP: "write the id of a security group, such as sg-0123456789abcdef0",
}
_PLACEHOLDER = re.compile("YOUR-[A-Z-]*")
_OTHER_FIX = "write your own value"

_TEMPLATE = re.compile(
    r"\$\{[^${}]*\}|\{\{[^{}]*\}\}|\A(\$[A-Z_][A-Z0-9_]*|%[A-Z_]+%|<[a-z][a-z _-]*>)\Z"
)
_TEMPLATE_FIX = "write the value itself: nothing in fleet.yaml is expanded"
_CURLY_QUOTES = "\u2018\u2019\u201c\u201d"
_FREE_TEXT = frozenset({"overlay", "tags", "contact", "wait_objectives"})
"""Keys whose values may contain a template for another program."""

_SAMPLE = re.compile(
    r"(subnet|sg)-0123456789abcdef0|https?://([^/]+\.)?example\.(com|org|net)(:[0-9]+)?/?"
)
_COMMON_SAMPLES = {("apps", "id"): 1234, ("scopes", "org"): "acme"}
"""Values below `github` that may be an operator's own: samples only beside one of the others."""
_SAMPLE_FIX = "write your own value, unless it is yours"


def check_placeholders(document: Document) -> Iterator[Problem]:
    """Return an error for each value with a placeholder or a template, in the order of the file."""
    for path, value in values_in(document.content):
        if not isinstance(value, str):
            continue
        found = _PLACEHOLDER.search(value)
        if found is not None:
            fix = _FIXES.get(found[0], _OTHER_FIX)
            yield document.problem(path, f"{show(value)} is a placeholder", fix)
        elif _FREE_TEXT.isdisjoint(path) and (found := _TEMPLATE.search(value)):
            # The rest of the value may be a secret.
            yield document.problem(path, f"contains {show(found[0])}, a template", _TEMPLATE_FIX)
        elif value[:1] in _CURLY_QUOTES and value:
            what = f"begins with the curly quote {value[0]}, which is part of the text"
            yield document.problem(
                path, what, "write straight quotes, as in a text editor for code"
            )


def check_empty(document: Document, root: type[Section]) -> Iterator[Problem]:
    """Return an error for each key without a value, such as a limit that was forgotten and would be none.

    `root` is the structure of the file. Null means something in `overlay`, which is no part of the structure.
    """
    for path, value in values_in(document.content):
        section = section_at(root, path[:-1]) if value is None and path else None
        if section is not None and str(path[-1]) in keys(section):
            yield document.problem(path, *no_value(root, path))


def check_samples(document: Document) -> Iterator[Problem]:
    """Return a warning for each value that the README has, too."""
    places = ("providers", "server")
    values = list(values_in(document.content))
    found = [path for path, value in values if path[:1] and path[0] in places and _is_sample(value)]
    if found:
        found += [path for path, value in values if _is_common(path, value)]
    for path in found:
        what = f"{show(document.value(path))} is the sample value of the README"
        yield document.problem(path, what, _SAMPLE_FIX, warning=True)


def _is_sample(value: object) -> bool:
    return isinstance(value, str) and _SAMPLE.fullmatch(value) is not None


def _is_common(path: KeyPath, value: object) -> bool:
    if len(path) != 4 or path[0] != "github":
        return False
    return value is not None and _COMMON_SAMPLES.get((str(path[1]), str(path[3]))) == value
