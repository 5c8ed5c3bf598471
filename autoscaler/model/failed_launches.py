"""Failed launches as rows of history, found by their SKU: no job has a machine of its own."""

import re
from dataclasses import dataclass

from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import Instant, LaunchRequestId, SkuName

KIND = "failed_launch"
"""The kind of these rows. Their record is the SKU."""

_DETAIL = re.compile(r"(\S+) (.*?): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FailedLaunch:
    """One launch that failed. `where` is the key of an offering, or `machine` with its ID.

    `code` is a `FailureClass`. `message` has the words of the provider or of the health checks.
    """

    at: Instant
    sku: SkuName
    launch_request: LaunchRequestId
    where: str
    code: str
    message: str


def row_of(failed: FailedLaunch) -> HistoryRow:
    """Return a failed launch as a row of history."""
    detail = f"{failed.launch_request} {failed.where}: {failed.message}"
    return HistoryRow(failed.at, KIND, failed.sku, "failed", detail[:500], failed.code)


def failed_launch_of(row: HistoryRow) -> FailedLaunch:
    """Return the failed launch of a row that `row_of` made."""
    found = _DETAIL.fullmatch(row.detail)
    request, where, message = found.groups() if found is not None else ("", "", row.detail)
    return FailedLaunch(
        row.at, SkuName(row.record), LaunchRequestId(request), where, row.code, message
    )
