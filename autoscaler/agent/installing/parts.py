"""What installations need, and how they fail: files with checksums, and failures. Pure."""

from __future__ import annotations

import collections
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RemoteFile = collections.namedtuple("RemoteFile", ("url", "sha256"))


class InstallFailure(Exception):  # noqa: N818 - it becomes a failed check
    """A step failed. `name` is the check that failed; the text says why."""

    def __init__(self, name: str, why: str, *, lasting: bool = False) -> None:
        super().__init__(why)
        self.name = name
        self.lasting = lasting
        """Whether another try would fail in the same way."""
        self.modules_work = False
        """Whether the driver answered before, so that the modules stay loaded for another try."""


def read_remote_file(value: Any) -> RemoteFile | None:
    """Return the file that the controller's parameters name, or None if they are not complete."""
    if not isinstance(value, dict):
        return None
    url, sha256 = value.get("url"), value.get("sha256")
    if not isinstance(url, str) or not isinstance(sha256, str):
        return None
    return RemoteFile(url, sha256)


def read_budget(parameters: dict[str, Any]) -> float | None:
    """Return `budget_s` of the controller's parameters, or None if it is not a number."""
    budget = parameters.get("budget_s")
    if isinstance(budget, bool) or not isinstance(budget, (int, float)):
        return None
    return float(budget)


def error_line(text: str) -> str:
    """Return the first line in which a package manager or NVIDIA's installer reports an error, or nothing."""
    found = re.search(r"^\s*(?:E: |dpkg: error|Error: |ERROR: ).*$", text, re.MULTILINE)
    return found.group(0).strip() if found else ""
