"""Finds placeholders that were not replaced: those of `autoscaler import --whole`, and others like them."""

import re
from collections.abc import Iterator, Mapping

from autoscaler.config.problems import Problem, show
from autoscaler.config.reading.document import Document, values_in

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


def check_placeholders(document: Document) -> Iterator[Problem]:
    """Return an error for each value with a placeholder, in the order of the file."""
    for path, value in values_in(document.content):
        found = _PLACEHOLDER.search(value) if isinstance(value, str) else None
        if found is not None:
            fix = _FIXES.get(found[0], _OTHER_FIX)
            yield document.problem(path, f"{show(value)} is a placeholder", fix)
