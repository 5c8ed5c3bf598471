"""The structure of versions.yaml. docs/images.md explains its keys.

In every section, an explicit null is a value that could not be read.
"""

import datetime
import re
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from autoscaler.config.problems import show
from autoscaler.config.settings.scalars import Matching, parsed, wrong
from autoscaler.config.settings.shapes import ImageOwner, Section, Text
from autoscaler.model.catalogue import Architecture

_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"


def parse_date(text: str) -> datetime.date:
    """Parse a date such as `2026-11-23`."""
    try:
        if re.fullmatch(_DATE, text):
            return datetime.date.fromisoformat(text)
    except ValueError:
        pass
    raise wrong(f"{show(text)} is not a date", "write YEAR-MONTH-DAY, such as 2026-11-23")


Date = Annotated[datetime.date, *parsed(parse_date, f"^{_DATE}$")]
Version = Annotated[
    str,
    Matching(r"[0-9]+(\.[0-9]+)*", "a version", 'write digits and dots, in quotes: "12.8.1"', 40),
]
Url = Annotated[
    str, Matching(r"https://[!-~]+", "an https URL", "write the whole address, with https://", 500)
]
Sha256 = Annotated[
    str, Matching("[0-9a-f]{64}", "a SHA-256 checksum", "write its 64 hexadecimal digits")
]
Digest = Annotated[
    str,
    Matching("sha256:[0-9a-f]{64}", "an image digest", "write sha256: and 64 hexadecimal digits"),
]
Reference = Annotated[
    str,
    Matching(
        r"[a-z0-9][a-z0-9.-]*(:\d+/)?[a-z0-9._/-]*:[\w.-]+",
        "an image with a tag",
        "write NAME:TAG",
        200,
    ),
]
AmiName = Annotated[
    str, Matching(r"[A-Za-z0-9 ()\[\]./'@_-]+", "an AMI's name", "write the name of one AMI", 128)
]
EntryName = Annotated[
    str, Matching("[a-z0-9]+(-[a-z0-9]+)*", "a name", "use a to z, 0 to 9 and - only")
]


class Read(Section):
    """Where a value was read, and when."""

    source: Url
    """The publisher's page that shows the value."""
    read_in: Text = ""
    """The copy that was read, if the publisher's page could not be reached."""
    read_on: Date
    """The day of reading."""


class EndOfLife(Section):
    """The day after which there are no more security updates."""

    date: Date | None
    source: Url
    """The publisher's page that shows the date."""


class File(Section):
    """A file that a build downloads, and its SHA-256 checksum."""

    url: Url | None
    sha256: Sha256 | None
    read_in: Text = ""
    """The copy that was read, if it is not that of the whole entry."""


class Release(Read):
    """A version of a program. A branch of a driver always has an end of life."""

    version: Version | None
    branch: Version = ""
    released: Date | None = None
    end_of_life: EndOfLife | None = None
    newest_kernel: Version = ""
    """Of a driver: the newest kernel, as MAJOR.MINOR, for which its source builds."""
    files: Mapping[EntryName, File] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _branch_ends(self) -> Self:
        if self.branch and self.end_of_life is None:
            raise wrong("has a branch and no end_of_life", "write end_of_life: {date, source}")
        return self


class NextRelease(Section):
    """A release of the runner after the one that images contain."""

    version: Version
    released: Date


class Runner(Release):
    """The release of actions/runner that images contain."""

    version: Version
    released: Date
    newest_on: Date
    """The last day on which this was known to be the newest release."""
    next: NextRelease | None = None
    """The first release after this one, once there is one."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.newest_on < self.released:
            raise wrong("has a newest_on before released", "correct one of them")
        following = self.next
        if following is None:
            return self
        if numbers(following.version) <= numbers(self.version):
            what = f"has {show(following.version)} as next, which is not newer"
            raise wrong(what, "remove next once images contain it")
        if following.released < self.newest_on:
            raise wrong("has a next that was released before newest_on", "correct one of them")
        return self


class MachineImage(Read):
    """The AMI that machine images are built from."""

    version: Version | None
    owner: ImageOwner
    names: Annotated[Mapping[Architecture, AmiName | None], Field(min_length=1)]
    end_of_life: EndOfLife


class ContainerImage(Read):
    """A base image of container images."""

    reference: Reference
    digest: Digest | None
    """The digest of the tag, for all platforms."""
    platforms: Mapping[EntryName, Digest | None] = Field(default_factory=dict)
    """The digests of single platforms."""
    end_of_life: EndOfLife

    def pinned(self) -> str | None:
        """Return the reference with its digest, or None if the digest could not be read."""
        return None if self.digest is None else f"{self.reference}@{self.digest}"


class Versions(Section):
    """The content of versions.yaml."""

    runner: Runner
    programs: Mapping[EntryName, Release] = Field(default_factory=dict)
    machine_images: Mapping[EntryName, MachineImage] = Field(default_factory=dict)
    container_images: Mapping[EntryName, ContainerImage] = Field(default_factory=dict)


def numbers(version: str) -> tuple[int, ...]:
    """Return a version's numbers, for comparisons."""
    return tuple(map(int, version.split(".")))


def children(value: object) -> dict[str, object]:
    """Return what the file says below a section or mapping, by key; nothing for another value."""
    if isinstance(value, Section):
        names = (name for name in type(value).model_fields if name in value.model_fields_set)
        return {name: getattr(value, name) for name in names}
    if isinstance(value, Mapping):
        return {str(key): inner for key, inner in value.items()}
    return {}
