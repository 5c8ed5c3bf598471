"""Judges what GitHub shows of a fleet's Apps, installations and runner groups. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.config.examinations import Check, fine, skipped, unknown, wrong
from autoscaler.console.links import GitHubPages
from autoscaler.github.apps.permissions import EVENT, missing_permissions
from autoscaler.github.inspection import (
    AppFacts,
    AppRefused,
    InstallationFacts,
    LimitFacts,
    ServerFacts,
)
from autoscaler.github.requests.outcomes import CLOCK_TOLERANCE
from autoscaler.model.catalogue import Catalogue, Scope
from autoscaler.model.identifiers import Seconds
from autoscaler.model.jobs.runner_group_excess import Excess, RunnerGroup, excesses

FEW_LEFT = 0.1
"""The part of an hour's requests below which the controller may have to wait for the next hour."""

API_VERSION = "2022-11-28"
"""The version of GitHub's API that answers requests without one (docs.github.com, "API Versions")."""

LEAST_SERVER = (3, 10)
"""The first Enterprise Server whose REST API registers just-in-time runners (docs.github.com,
enterprise-server@3.10, "Self-hosted runners")."""

_SHOWN = 5
_DAYS = 14
"""How many days before its end a runner version must be replaced."""


@dataclass(frozen=True, slots=True)
class Needed:
    """What an App needs for one fleet. `wants_event`: GitHub sends webhooks to this controller."""

    permissions: Mapping[str, str]
    wants_event: bool


def judge_clock(ahead: Seconds) -> Check:
    """Judge the difference between this host's clock and GitHub's, in seconds."""
    if abs(ahead) <= CLOCK_TOLERANCE:
        return fine("clock", f"within {CLOCK_TOLERANCE:g} s of GitHub's")
    side = "ahead of" if ahead > 0 else "behind"
    return wrong(
        "clock",
        f"this host's clock is {abs(ahead):.0f} s {side} GitHub's",
        "GitHub refuses the App's tokens of a wrong time",
        "timedatectl set-ntp true",
    )


def judge_silence(api_url: str, error: Exception) -> Check:
    """Return that the API cannot be reached, or refuses every request of this host."""
    return wrong(
        "API",
        f"{api_url} gives no usable answer: {error}",
        "the controller finds no jobs and registers no runners",
        f"curl -i {api_url}; look at DNS, the proxy, and the organization's IP allow list",
    )


def judge_app(
    app_id: int, key_file: str, found: AppFacts | AppRefused, needed: Needed
) -> list[Check]:
    """Judge whether GitHub takes the App's key, and what the App asks its owners for."""
    name = f"App {app_id}"
    clock = judge_clock(found.clock_ahead)
    if isinstance(found, AppRefused):
        why = "the controller can ask GitHub nothing"
        what = f"GitHub refuses it: {found.status} {found.message}"
        fix = (
            f"write the ID and a key of one App into github.apps: make a key on the App's page, and save it "
            f"as {key_file}"
        )
        return [clock, wrong(name, what, why, fix)]
    lacks = _lacks(needed, found.permissions, found.events)
    if lacks:
        check = wrong(
            f"{name} permissions",
            f"it does not ask for: {', '.join(lacks)}",
            _why_permissions(lacks),
            f"add them at {_app_settings(found.page)}, and accept them in each installation",
        )
    else:
        check = fine(f"{name} permissions", "it asks for all that this fleet needs")
    return [clock, fine(name, "its ID fits its key"), check]


def judge_server(found: ServerFacts) -> Check:
    """Judge the versions of an Enterprise Server and of the API."""
    name = "GitHub's version"
    if found.version is not None:
        server = re.match(r"(\d+)\.(\d+)", found.version)
        if server is None or (int(server[1]), int(server[2])) < LEAST_SERVER:
            least = ".".join(map(str, LEAST_SERVER))
            why = "it cannot register runners for one job"
            what = f"GitHub Enterprise Server {found.version} is older than {least}"
            return wrong(name, what, why, f"upgrade the server to {least} or later")
    shown = f"Enterprise Server {found.version}" if found.version else "github.com or ghe.com"
    if found.api_versions is not None and API_VERSION not in found.api_versions:
        what = f"{shown} serves the API of {', '.join(found.api_versions)}, not of {API_VERSION}"
        return wrong(
            name, what, "GitHub may refuse every request", "install a newer version of this program"
        )
    return fine(name, f"{shown}, API {API_VERSION}")


def judge_installation(
    scope: str, app_id: int, app_page: str, found: InstallationFacts | None, needed: Needed
) -> list[Check]:
    """Judge an App's installation for one scope."""
    name = f"installation of App {app_id} on {scope}"
    if found is None:
        return [
            wrong(
                name,
                "the App is not installed there",
                "no runner can be registered for its jobs",
                f"install it at {app_page}/installations/new, or correct github.scopes",
            )
        ]
    if found.suspended:
        return [
            wrong(
                name,
                "it is suspended",
                "GitHub refuses every request for it, and its jobs get no machine",
                f"unsuspend it at {found.page}",
            )
        ]
    lacks = _lacks(needed, found.permissions, found.events)
    if lacks:
        what = f"its owner has not accepted: {', '.join(lacks)}"
        fix = f"accept the App's new permissions at {found.page}"
        return [wrong(name, what, _why_permissions(lacks), fix)]
    return [fine(name, "not suspended, with all permissions")]


def judge_group(
    catalogue: Catalogue, scope: Scope, group: RunnerGroup | None, pages: GitHubPages
) -> Check:
    """Judge the runner group of a scope; None is one that the App does not see."""
    name = f"runner group {scope.runner_group} of {scope.owner}"
    page = f"{pages.base}/organizations/{scope.owner}/settings/actions/runner-groups"
    if group is None:
        return wrong(
            name,
            "the App sees no such runner group",
            "no runner can be registered",
            f"create it at {page}, or correct runner_group in github.scopes",
        )
    why = "GitHub gives its runners no job of them"
    if group.restricted_to_workflows and not group.workflows:
        return wrong(name, "no workflow may use it", why, f"choose workflows at {page}")
    refused = _refused(scope, group)
    if refused:
        what = f"it does not admit {', '.join(refused[:_SHOWN])}"
        return wrong(name, what, why, f"choose repositories at {page}")
    found = {one.excess: one.repositories for one in excesses(catalogue, scope, group, ())}
    if Excess.PUBLIC_REPOSITORIES in found and _forks_are_served(catalogue):
        return wrong(
            name,
            "it admits public repositories, and a SKU's access admits forks",
            "anyone's pull request could run on these machines",
            f"untick Allow public repositories at {page}, or set access.forks: false",
        )
    if Excess.OUTSIDE_ACCESS in found:
        outside = ", ".join(found[Excess.OUTSIDE_ACCESS][:_SHOWN]) or "every repository to come"
        return wrong(
            name,
            f"it admits repositories that no SKU's access admits: {outside}",
            "their jobs can take a machine that was launched for another job",
            f"choose repositories at {page}, or widen access of the SKUs",
        )
    return fine(name, f"it exists (visibility {group.visibility})")


def judge_limits(scope: str, app_id: int, found: LimitFacts | None) -> Check:
    """Judge the requests that an installation has left in this hour."""
    name = f"rate limit of App {app_id} on {scope}"
    if found is None:
        return skipped(name, "this server has no rate limits")
    what = f"{found.remaining:,} of {found.limit:,} requests left in this hour"
    if found.remaining < FEW_LEFT * found.limit:
        return wrong(
            name,
            what,
            "without requests, the controller waits until the next hour",
            "see what else uses this App: autoscaler status; or add a second App to github.apps",
        )
    return fine(name, what)


def judge_runner(version: str, source: str, end: float | None, now: float) -> Check:
    """Judge when GitHub refuses a version of actions/runner. `end` and `now` are Unix seconds."""
    name = f"runner {version} of {source}"
    if end is None:
        return fine(name, "GitHub names no end of this version")
    days = (end - now) / 86_400
    if days > _DAYS:
        return fine(name, f"GitHub refuses it in {days:.0f} days")
    what = "GitHub refuses this version" if days <= 0 else f"GitHub refuses it in {days:.1f} days"
    why = "its machines get no jobs then"
    return wrong(
        name, what, why, "autoscaler images check; then build the image again: docs/images.md"
    )


def unreadable(name: str, error: Exception) -> Check:
    """Return that GitHub gave no usable answer."""
    return unknown(name, f"GitHub gave no usable answer: {error}", "autoscaler doctor, in a minute")


def _lacks(needed: Needed, permissions: Mapping[str, str], events: Sequence[str]) -> list[str]:
    lacks = missing_permissions(needed.permissions, permissions)
    if needed.wants_event and EVENT not in events:
        lacks.append(f"the event {EVENT}")
    return lacks


def _why_permissions(lacks: Sequence[str]) -> str:
    if any("self_hosted_runners" in one or "administration" in one for one in lacks):
        return "no runner can be registered"
    if "actions: write" in lacks:
        return "jobs that an interruption kills are not re-run"
    if lacks == [f"the event {EVENT}"]:
        return "GitHub sends no webhook, so jobs are found up to a minute later"
    return "the controller does not see the jobs"


def _refused(scope: Scope, group: RunnerGroup) -> list[str]:
    """Return the repositories that the scope names, without globs, and that the group does not admit."""
    if group.repositories == ():
        return ["any repository"]
    named = [one for one in scope.repositories if not set("*?[") & set(one)]
    return [one for one in named if group.refuses(one, is_public=False)]


def _forks_are_served(catalogue: Catalogue) -> bool:
    return any(
        sku.access.forks and sku.access.public_repositories for sku in catalogue.skus.values()
    )


def _app_settings(page: str) -> str:
    return f"the App's settings, from {page}"
