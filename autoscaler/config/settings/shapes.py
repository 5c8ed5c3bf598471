"""The types of single values in fleet.yaml, by name.

This module and `scalars` define the format of each type; `settings` has the keys with their types.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from autoscaler.config.settings.near_misses import (
    check_app_id,
    check_image_name,
    check_owner,
    check_repository,
    parse_store,
)
from autoscaler.config.settings.other_names import OtherName
from autoscaler.config.settings.scalars import (
    DURATION,
    Matching,
    check_branch_glob,
    check_cron,
    check_glob,
    check_label,
    check_sku_name,
    check_timezone,
    parse_address,
    parse_duration,
    parse_positive_duration,
    parse_public_url,
    parse_secure_url,
    parsed,
    write_duration,
)
from autoscaler.model.identifiers import Address


class FileName(str):
    """The path of a file, relative to the folder of fleet.yaml."""

    __slots__ = ()


class SecretFileName(FileName):
    """The path of a file with secrets."""

    __slots__ = ()


FleetName = Annotated[
    str,
    Matching(
        "[a-z0-9]([a-z0-9-]*[a-z0-9])?",
        "a fleet name",
        "use a to z, 0 to 9 and - only: runners and machines are named after it",
        maximum=32,
    ),
]
Name = Annotated[
    str,
    Matching("[A-Za-z0-9][A-Za-z0-9._-]*", "a name", "use letters, digits, dots, - and _ only"),
]
SkuName = Annotated[Name, AfterValidator(check_sku_name)]
ProviderName = Annotated[
    str,
    Matching(
        "[A-Za-z0-9][A-Za-z0-9._-]*",
        "a name",
        "use letters, digits, dots, - and _ only",
        maximum=64,
    ),
]
FilePath = Annotated[
    str,
    Matching(r"[^\x00-\x1f\x7f]+", "a path", "name a file, relative to this one", maximum=1024),
    AfterValidator(FileName),
]
"""The path of a file that `checks/named_files` then tries to read."""
SecretFile = Annotated[FilePath, AfterValidator(SecretFileName)]
"""The path of a file with secrets. If there is no such file, it is not shown: it may be the secret itself."""
Text = Annotated[
    str,
    Matching(r"[^\x00-\x1f\x7f]+", "a line of text", "write something on one line", maximum=256),
]
Owner = Annotated[
    str,
    AfterValidator(check_owner),
    Matching("[A-Za-z0-9][A-Za-z0-9_-]*", "an organization's name", "write it as in its URL"),
]
RepositoryName = Annotated[
    str,
    AfterValidator(check_repository),
    Matching("[A-Za-z0-9][A-Za-z0-9_-]*/[A-Za-z0-9._-]+", "a repository", "write OWNER/NAME", 200),
]
AcceleratorModel = Annotated[
    str,
    Matching(
        r"[A-Za-z0-9][A-Za-z0-9 ._()/+-]*",
        "a model",
        "write a product name as nvidia-smi prints it, or AMD's architecture, such as gfx942",
        maximum=80,
    ),
]
DriverVersion = Annotated[
    str,
    Matching(
        r"[0-9]+(\.[0-9]+)*",
        "a driver's version",
        'write it, or its beginning, in quotes: "580" or "580.95.05"',
        maximum=32,
    ),
]
InstanceType = Annotated[
    str, Matching(r"[a-z0-9-]+\.[a-z0-9-]+", "an instance type", "write one such as g5.4xlarge")
]
ImageOwner = Annotated[
    str,
    Matching(
        "self|amazon|aws-marketplace|[0-9]{12}",
        "an image owner",
        "write self, amazon, aws-marketplace or 12 digits in quotes",
    ),
]
ImageName = Annotated[
    str,
    AfterValidator(check_image_name),
    Matching(
        r"[A-Za-z0-9 ()\[\]./'@_*?-]{1,128}", "an image name glob", "write one such as gpu-*", 128
    ),
]
AppId = Annotated[int, BeforeValidator(check_app_id), Field(ge=1, le=999_999_999_999_999)]
ContainerImage = Annotated[
    str,
    Matching(
        r"[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9._-]+)*(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?",
        "an image reference",
        "write [REGISTRY/]NAME[:TAG][@DIGEST]",
        maximum=512,
    ),
]
NoWebhook = Annotated[
    str,
    Matching(
        "none", "a kind of webhook", "write none, or remove the key and add webhook_secret_file"
    ),
]
PublicUrl = Annotated[str, AfterValidator(parse_public_url)]
SecureUrl = Annotated[str, AfterValidator(parse_secure_url)]
StoreUrl = Annotated[str, AfterValidator(parse_store)]
Glob = Annotated[str, AfterValidator(check_glob)]
BranchGlob = Annotated[str, AfterValidator(check_branch_glob)]
Label = Annotated[str, AfterValidator(check_label)]
Cron = Annotated[str, AfterValidator(check_cron)]
TimeZone = Annotated[str, AfterValidator(check_timezone)]
ListenAddress = Annotated[
    Address,
    *parsed(parse_address, r"^.+:[0-9]{1,5}$", bare_numbers=True),
    PlainSerializer(str),
]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Positive = Annotated[int, Field(ge=1, le=1_000_000)]
Percent = Annotated[float, Field(ge=0, le=100)]
Share = Annotated[float, Field(gt=0, le=1)]
Gibibytes = Annotated[int, Field(ge=1, le=65536)]
Dollars = Annotated[float, Field(ge=0, le=1e9)]
Duration = Annotated[
    float,
    *parsed(parse_positive_duration, DURATION, bare_numbers=True),
    PlainSerializer(write_duration),
]
DurationOrNone = Annotated[
    float,
    *parsed(parse_duration, DURATION, bare_numbers=True),
    PlainSerializer(write_duration),
]


class NoValueError(AttributeError):
    """A key has an error of its own, so that it has no value to check."""


class Section(BaseModel):
    """A mapping of fleet.yaml: frozen, strict, and without keys that it does not name."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )
    others: ClassVar[Mapping[str, OtherName]] = {}
    """What to write instead of a key of another tool."""
    alone: ClassVar[tuple[str, ...]] = ()
    """The keys that a single value may mean in place of the section; by default the only required one."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Raise NoValueError for a key that `validate` omitted, and for a property that reads it."""
            if name in type(self).model_fields or hasattr(type(self), name):
                raise NoValueError(name)
            return super().__getattr__(name)
