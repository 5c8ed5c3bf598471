"""Launch templates and their versions, kept by the front.

Moto lists at most fifteen of them, without a token, and uses the real clock. This module answers the
actions on templates and finds the version for a launch. `launching` interprets the data.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.ec2.faults import Faults
from lab.ec2.filters import Filters
from lab.ec2.launch_data import LaunchData, launch_data, requested_tags
from lab.ec2.paging import page_of
from lab.ec2.query import Ec2Error, Tree, answer, element, tag_set, timestamp

FILTERS = frozenset({"create-time", "launch-template-name"})
MAX_NAME = 128


@dataclass(frozen=True, slots=True)
class Template:
    """One version of a launch template, as a launch uses it."""

    id: str
    version: str
    data: LaunchData


@dataclass(frozen=True, slots=True)
class _Version:
    number: int
    description: str
    created_at: float
    said: Tree
    data: LaunchData


@dataclass(slots=True)
class _Named:
    """A launch template. Times are Unix seconds of lab time."""

    number: int
    id: str
    name: str
    tags: dict[str, str]
    created_at: float
    visible_at: float
    default: int = 1
    versions: dict[int, _Version] = field(default_factory=dict)


class LaunchTemplates:
    """The account's launch templates, in the order of their creation."""

    def __init__(self, account: str, now: Callable[[], float], faults: Faults) -> None:
        self._creator = f"arn:aws:iam::{account}:root"
        self._now = now
        self._faults = faults
        self.parameters: dict[str, str] = {}
        """Systems Manager's parameters of images, by name."""
        self._by_id: dict[str, _Named] = {}
        self._made = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the existing templates."""
        return tuple(one.name for one in self._by_id.values())

    def find(self, wanted: Tree) -> Template:
        """Return the version that a LaunchTemplateSpecification names. Raises Ec2Error."""
        named = self._wanted(wanted)
        version = _version(named, wanted.text("Version", "$Default"))
        return Template(named.id, str(version.number), version.data)

    def tags_of(self, template_id: str) -> Mapping[str, str]:
        """Return the tags of a template. Raises Ec2Error if it does not exist."""
        return self._wanted(Tree(LaunchTemplateId=template_id)).tags

    def create(self, params: Tree) -> str:
        """Answer CreateLaunchTemplate. Raises Ec2Error."""
        name, now = params.text("LaunchTemplateName"), self._now()
        if not 3 <= len(name) <= MAX_NAME:
            raise Ec2Error("InvalidLaunchTemplateName.MalformedException", "3 to 128 characters")
        if name in self.names:
            raise Ec2Error(
                "InvalidLaunchTemplateName.AlreadyExistsException",
                "Launch template name already in use.",
            )
        made = _Named(
            number=self._made,
            id="lt-" + secrets.token_hex(9)[:17],
            name=name,
            tags=requested_tags(params, "launch-template"),
            created_at=now,
            visible_at=now + self._faults.templates_unseen,
        )
        self._add_version(made, params)
        self._made += 1
        self._by_id[made.id] = made
        return answer("CreateLaunchTemplate", element("launchTemplate", self._shown(made)))

    def create_version(self, params: Tree) -> str:
        """Answer CreateLaunchTemplateVersion. Copies nothing from an earlier version."""
        if "SourceVersion" in params:
            raise Ec2Error("UnsupportedOperation", "The lab does not do SourceVersion.")
        named = self._wanted(params)
        shown = self._version_shown(named, self._add_version(named, params))
        return answer("CreateLaunchTemplateVersion", element("launchTemplateVersion", shown))

    def modify(self, params: Tree) -> str:
        """Answer ModifyLaunchTemplate, which sets the default version. Raises Ec2Error."""
        named = self._wanted(params)
        named.default = _version(named, params.text("SetDefaultVersion")).number
        return answer("ModifyLaunchTemplate", element("launchTemplate", self._shown(named)))

    def delete(self, params: Tree) -> str:
        """Answer DeleteLaunchTemplate. Raises Ec2Error."""
        named = self._by_id.pop(self._wanted(params).id)
        return answer("DeleteLaunchTemplate", element("launchTemplate", self._shown(named)))

    def describe(self, params: Tree) -> str:
        """Answer DescribeLaunchTemplates. Raises Ec2Error."""
        filters = Filters(params, FILTERS)
        ids, names = params.texts("LaunchTemplateId"), params.texts("LaunchTemplateName")
        wanted = [self._wanted(Tree(LaunchTemplateId=one)) for one in ids]
        wanted += [self._wanted(Tree(LaunchTemplateName=one)) for one in names]
        chosen = [
            one
            for one in (wanted if ids or names else self._visible())
            if filters.admit(_attributes(one), one.tags)
        ]
        page, more = page_of(params, chosen, lambda one: one.number, 1)
        shown = element("launchTemplates", [self._shown(one) for one in page])
        return answer("DescribeLaunchTemplates", shown + more)

    def describe_versions(self, params: Tree) -> str:
        """Answer DescribeLaunchTemplateVersions of one template. Raises Ec2Error."""
        named = self._wanted(params)
        asked = params.texts("LaunchTemplateVersion")
        chosen = [_version(named, one) for one in asked] or list(named.versions.values())
        page, more = page_of(params, chosen, lambda one: one.number, 1)
        resolve = params.text("ResolveAlias") == "true"
        shown = [self._version_shown(named, one, resolve=resolve) for one in page]
        return answer(
            "DescribeLaunchTemplateVersions", element("launchTemplateVersionSet", shown) + more
        )

    def _add_version(self, named: _Named, params: Tree) -> _Version:
        said = params.structure("LaunchTemplateData")
        number, description = len(named.versions) + 1, params.text("VersionDescription")
        version = _Version(number, description, self._now(), said, launch_data(said))
        named.versions[number] = version
        return version

    def _visible(self) -> list[_Named]:
        now = self._now()
        return [one for one in self._by_id.values() if one.visible_at <= now]

    def _wanted(self, params: Tree) -> _Named:
        by_id, by_name = params.text("LaunchTemplateId"), params.text("LaunchTemplateName")
        for one in self._visible():
            if one.id == by_id or (not by_id and one.name == by_name):
                return one
        if by_id:
            raise Ec2Error(
                "InvalidLaunchTemplateId.NotFound",
                f"The specified launch template, with template ID {by_id[:60]}, does not exist.",
            )
        raise Ec2Error(
            "InvalidLaunchTemplateName.NotFoundException",
            "At least one of the launch templates specified in the request does not exist.",
        )

    def _shown(self, one: _Named) -> dict[str, Any]:
        return {
            "launchTemplateId": one.id,
            "launchTemplateName": one.name,
            "createTime": timestamp(one.created_at),
            "createdBy": self._creator,
            "defaultVersionNumber": one.default,
            "latestVersionNumber": max(one.versions),
            "tagSet": tag_set(one.tags),
        }

    def _version_shown(
        self, named: _Named, version: _Version, *, resolve: bool = False
    ) -> dict[str, Any]:
        data = _data_shown(version.said)
        parameter = str(data.get("imageId", "")).removeprefix("resolve:ssm:")
        if resolve and parameter in self.parameters:
            data["imageId"] = self.parameters[parameter]
        return {
            "launchTemplateId": named.id,
            "launchTemplateName": named.name,
            "versionNumber": version.number,
            "versionDescription": version.description or None,
            "createTime": timestamp(version.created_at),
            "createdBy": self._creator,
            "defaultVersion": version.number == named.default,
            "launchTemplateData": data,
        }


def _version(named: _Named, wanted: str) -> _Version:
    words = {"$Default": named.default, "$Latest": max(named.versions)}
    number = words.get(wanted, int(wanted[:9]) if wanted.isascii() and wanted.isdecimal() else 0)
    if number not in named.versions:
        raise Ec2Error(
            "InvalidLaunchTemplateId.VersionNotFound",
            f"Could not find the specified version {wanted[:20]} for the launch template with ID "
            f"{named.id}.",
        )
    return named.versions[number]


def _attributes(one: _Named) -> dict[str, str]:
    return {"create-time": timestamp(one.created_at), "launch-template-name": one.name}


def _data_shown(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return launch data with the names of an answer: first letter in lower case, lists end in `Set`."""
    shown: dict[str, Any] = {}
    for name, value in said.items():
        small = name[:1].lower() + name[1:]
        if isinstance(value, list):
            items = [_data_shown(one) if isinstance(one, Mapping) else one for one in value]
            shown[f"{small}Set"] = items
        else:
            shown[small] = _data_shown(value) if isinstance(value, Mapping) else value
    return shown
