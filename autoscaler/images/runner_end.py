"""Asks GitHub when a version of actions/runner ends, for `autoscaler images check --scope`."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import date, datetime

_SCOPE = re.compile(r"org:([\w.-]+)|repo:([\w.-]+/[\w.-]+)")
_MOST = 64 * 1024
_TIMEOUT = 30.0


class GitHubAnswerError(Exception):
    """GitHub cannot be asked, or its answer cannot be used. The text is for the operator."""


def runner_end(scope: str, version: str, environment: Mapping[str, str]) -> date | None:
    """Return the day (UTC) from which GitHub refuses a runner version, or None if GitHub names none.

    `scope` is `org:OWNER` or `repo:OWNER/NAME`. The environment has `GITHUB_TOKEN`, and `GITHUB_API_URL` for
    another GitHub than github.com. Of GitHub's two times, the earlier one counts. Source: github.blog,
    changelog of 2026-09-03. Raises GitHubAnswerError.
    """
    found = _SCOPE.fullmatch(scope)
    if found is None:
        raise GitHubAnswerError(f"{scope!r} is not a scope such as org:OWNER or repo:OWNER/NAME")
    token = environment.get("GITHUB_TOKEN", "").strip()
    if not token:
        raise GitHubAnswerError("--scope needs a token in the environment variable GITHUB_TOKEN")
    base = environment.get("GITHUB_API_URL", "https://api.github.com").rstrip("/")
    route = f"orgs/{found[1]}" if found[1] else f"repos/{found[2]}"
    url = f"{base}/{route}/actions/runners/deprecations/{version}"
    if not url.startswith(("https://", "http://")):
        raise GitHubAnswerError(f"GITHUB_API_URL is no https URL: {base}")
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - checked above
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310
            ends = json.loads(answer.read(_MOST))
        times = (ends["runtime_deprecates_at"], ends.get("registration_deprecates_at"))
        return min((datetime.fromisoformat(one).date() for one in times if one), default=None)
    except urllib.error.HTTPError as error:
        with error:
            raise GitHubAnswerError(f"{url}: {error.code} {error.reason}") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise GitHubAnswerError(f"{url}: {type(error).__name__}: {error}") from None
