"""Reads runner groups by name: their ids for registrations, and the repositories that may use them.

Reads a list again after an hour, after a minute if a name is missing, and after GitHub refused an id.
Caches a list for each App, because Apps may see different groups.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import OperatorError
from autoscaler.github.apps.targets import Target
from autoscaler.github.jobs import RepositoryName
from autoscaler.github.requests.api import Api, Caller, read_as
from autoscaler.github.requests.exchange import Importance, Request
from autoscaler.github.requests.outcomes import NotShownError
from autoscaler.github.requests.received import Received
from autoscaler.github.requests.single_flight import SingleFlight
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.jobs.runner_group_excess import RunnerGroup

REPOSITORY_GROUP_ID = 1
"""The id of a repository's only group, the default one (docs.github.com: organizations have groups)."""

_KEPT: Seconds = 3600.0
_MISS_KEPT: Seconds = 60.0


class _Group(Received):
    id: Annotated[int, Field(gt=0)]
    name: str
    inherited: bool = False
    visibility: str = "all"
    allows_public_repositories: bool = False
    restricted_to_workflows: bool = False
    selected_workflows: list[str] | None = None


class _Repository(Received):
    full_name: RepositoryName


class _RepositoryPage(Received):
    repositories: list[_Repository]


class _GroupPage(Received):
    runner_groups: list[_Group]


@dataclass(frozen=True, slots=True)
class _Listing:
    read_at: Instant
    groups: Mapping[str, Sequence[_Group]]


class RunnerGroups:
    """The cached runner groups of every organization, for each App."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._listings: dict[str, dict[str, _Listing]] = {}
        self._flights: SingleFlight[_Listing] = SingleFlight()

    async def id_of(self, target: Target, name: str, caller: Caller) -> int:
        """Return the group's id.

        Raises NotShownError if the caller sees no such group, OperatorError if there are several or if a
        repository cannot have this group, and as `Api.ask`.
        """
        wanted = name.lower()
        if target.repository is not None:
            if wanted != "default":
                raise OperatorError(
                    f"{target}: a repository has no runner group {name!r}; remove runner_group from "
                    "its scope, or use the organization as the scope"
                )
            return REPOSITORY_GROUP_ID
        listing = self._listings.get(target.account, {}).get(caller.name)
        if listing is None or self._stale(listing, wanted):
            listing = await self._flights.run(caller.name, lambda: self._read(target, caller))
        return _named(listing, name, target).id

    async def group(self, target: Target, name: str, caller: Caller) -> RunnerGroup:
        """Return the current state of an organization's group. Raises as `id_of`."""
        listing = await self._flights.run(caller.name, lambda: self._read(target, caller))
        found = _named(listing, name, target)
        chosen = None
        if found.visibility == "selected":
            chosen = await self._repositories(target, found.id, caller)
        return RunnerGroup(
            found.visibility,
            found.allows_public_repositories,
            found.restricted_to_workflows,
            chosen,
            tuple(found.selected_workflows or ()),
        )

    def invalidate(self, target: Target) -> None:
        """Drop the cached groups of a target, because GitHub refused a request with one."""
        self._listings.pop(target.account, None)

    async def close(self) -> None:
        """Cancel requests. Idempotent."""
        await self._flights.close()

    def _stale(self, listing: _Listing, wanted: str) -> bool:
        age = self._clock.now() - listing.read_at
        return age > (_KEPT if len(listing.groups.get(wanted, ())) == 1 else _MISS_KEPT)

    async def _repositories(self, target: Target, group: int, caller: Caller) -> tuple[str, ...]:
        route = "/orgs/{org}/actions/runner-groups/{runner_group_id}/repositories{?per_page}"
        request = Request(
            "GET", route, {**target.variables, "runner_group_id": group, "per_page": 100}
        )
        names: list[str] = []
        async with aclosing(self._api.pages(request, caller)) as pages:
            async for answer in pages:
                shown = read_as(_RepositoryPage, request, answer).repositories
                names += (one.full_name for one in shown)
        return tuple(names)

    async def _read(self, target: Target, caller: Caller) -> _Listing:
        route = "/orgs/{org}/actions/runner-groups{?per_page}"
        request = Request(
            "GET", route, {**target.variables, "per_page": 100}, importance=Importance.REGISTER
        )
        read_at = self._clock.now()
        groups: defaultdict[str, list[_Group]] = defaultdict(list)
        async with aclosing(self._api.pages(request, caller)) as pages:
            async for answer in pages:
                for group in read_as(_GroupPage, request, answer).runner_groups:
                    groups[group.name.lower()].append(group)
        listing = _Listing(read_at, groups)
        self._listings.setdefault(target.account, {})[caller.name] = listing
        return listing


def _named(listing: _Listing, name: str, target: Target) -> _Group:
    found = listing.groups.get(name.lower(), ())
    # An organization may have a group of the same name as one that it inherits from its enterprise.
    same = [one for one in found if one.name == name] if len(found) > 1 else found
    if len(same) == 1:
        return same[0]
    if found:
        ids = " and ".join(
            f"{one.id}{' of the enterprise' if one.inherited else ''}" for one in found
        )
        raise OperatorError(
            f"{target} has {len(found)} runner groups {name!r}, with the ids {ids}; rename all but one"
        )
    raise NotShownError(
        f"{target} has no runner group {name!r} that the App can see; create it, or correct "
        "runner_group of the scope"
    )
