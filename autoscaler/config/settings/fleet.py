"""The structure of fleet.yaml: every key with its type and default.

`structure` adds the keys of each kind of provider. A type here validates one value by itself; `checks/`
validates combinations of values. Only `load` creates Settings. They are frozen and contain no secret, only the
names of files with secrets.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from autoscaler.config.settings import other_names
from autoscaler.config.settings.scalars import parsed, wrong
from autoscaler.config.settings.shapes import (
    AppId,
    ContainerImage,
    Count,
    Dollars,
    FilePath,
    FleetName,
    Glob,
    ListenAddress,
    NoValueError,
    NoWebhook,
    Owner,
    Positive,
    ProviderName,
    PublicUrl,
    RepositoryName,
    SecretFile,
    Section,
    SecureUrl,
    SkuName,
    StoreUrl,
    Text,
)
from autoscaler.config.settings.sku import LaunchOptionSettings, SkuSettings
from autoscaler.model.catalogue import RegistrationRate
from autoscaler.model.identifiers import Seconds
from autoscaler.model.wait_objectives import (
    OBJECTIVE_FORM,
    UnusableObjectiveError,
    WaitObjective,
    parse_objective,
)

_RATE = RegistrationRate()


class App(Section):
    """A GitHub App."""

    others = other_names.APP

    id: AppId
    """The App ID."""
    private_key_file: SecretFile
    """The App's private key, a PEM file."""


class ScopeSettings(Section):
    """Where runners are registered: an organization or a repository."""

    others = other_names.SCOPE
    alone = ("org", "repo")

    org: Owner | None = None
    """An organization. A scope has either `org` or `repo`."""
    repo: RepositoryName | None = None
    """A repository, as `owner/name`."""
    runner_group: Text = "Default"
    """The runner group of the runners."""
    repositories: Annotated[tuple[Glob, ...], Field(min_length=1)] = ("*",)
    """The organization's repositories to serve: globs over `owner/name`."""


class Registrations(Section):
    """A token bucket for each account's runner registrations at GitHub."""

    burst: Positive = _RATE.burst
    """Maximum number of registrations at once."""
    per_second: Annotated[float, Field(gt=0, le=1e6)] = _RATE.per_second
    """Registrations a second on average: about 2.5 for each App, 5 at most for one account."""


class GitHubSettings(Section):
    """How GitHub is reached, and what is served there."""

    others = other_names.GITHUB

    api_url: SecureUrl = "https://api.github.com"
    """The REST API; for GitHub Enterprise Server `https://HOST/api/v3`."""
    apps: Annotated[tuple[App, ...], Field(min_length=1)]
    """The GitHub Apps; several share the registrations."""
    webhook: NoWebhook | None = None
    """`none`: GitHub sends no webhooks, and the controller finds jobs in its lists alone."""
    webhook_secret_file: SecretFile | None = None
    """A file with one webhook secret per line: the old and the new one during a rotation."""
    scopes: Annotated[tuple[ScopeSettings, ...], Field(min_length=1)]
    """The organizations and repositories to serve: at most 100. The first that covers a job gives its group."""
    registrations: Registrations = Registrations()
    """How fast the controller registers runners."""


class Tls(Section):
    """The server's certificate."""

    certificate_file: FilePath
    """The certificate and its intermediates, PEM."""
    key_file: SecretFile
    """The certificate's private key, PEM."""
    ca_file: FilePath | None = None
    """The CA certificate with which machines check the server's, PEM; default: those of their system."""


class ServerSettings(Section):
    """Where the controller listens, and how machines reach it."""

    others = other_names.SERVER

    listen: ListenAddress
    """`host:port` of /bootstrap, /metrics, /healthz, /readyz, /admin and the console."""
    tls: Tls | None = None
    """The server's certificate. Without it the server speaks plain HTTP: on loopback, or with `insecure`."""
    insecure: bool = False
    """Allow plain HTTP although other hosts can connect, such as behind a proxy that terminates TLS."""
    public_url: PublicUrl
    """The URL under which machines reach the controller."""
    webhook_listen: ListenAddress | None = None
    """`host:port` of /webhook alone, plain HTTP; without it, /webhook is on `listen`."""
    admin_token_file: SecretFile | None = None
    """A file with a line `NAME ROLE TOKEN` per token of an operator; without it there is no /admin."""
    metrics_token_file: SecretFile | None = None
    """A file with one token per line; without it, anyone who reaches `listen` may read /metrics."""


class LimitSettings(Section):
    """Limits of the whole fleet."""

    others = other_names.LIMITS

    machines: Count | None = None
    """The largest number of machines; default: no limit."""
    dollars_per_hour: Dollars | None = None
    """The most that all machines may cost in an hour; default: no limit."""


def _objective(text: str) -> WaitObjective:
    try:
        return parse_objective(text)
    except UnusableObjectiveError as error:
        raise wrong(
            str(error), f"write {OBJECTIVE_FORM}, such as gpu=linux.*gpu:300:0.999"
        ) from None


def _distinct(objectives: tuple[WaitObjective, ...]) -> tuple[WaitObjective, ...]:
    if len({one.name for one in objectives}) < len(objectives):
        raise wrong("has one name twice", "give each objective a name of its own")
    return objectives


Objective = Annotated[WaitObjective, *parsed(_objective, "^[A-Za-z0-9_-]{1,64}=.+:[0-9]+:[0-9.]+$")]


class MetricsSettings(Section):
    """What /metrics shows beside the series of the whole fleet."""

    repositories: Annotated[tuple[RepositoryName, ...], Field(max_length=50)] = ()
    """Repositories, as `owner/name`, with series of their own: waits, results, run times and costs."""
    wait_objectives: Annotated[
        tuple[Objective, ...], Field(max_length=50), AfterValidator(_distinct)
    ] = ()
    """How soon jobs start, each as for `autoscaler alerts --objective`. A SKU has the first that matches."""


@dataclass(frozen=True, slots=True)
class JobContainer:
    """The container in which the jobs of a launch option run: image, user, limits and environment.

    `cpus` is the number of CPUs, and `memory` is in bytes; None means no limit. `shared_memory` is the size of
    /dev/shm in bytes; None means the default of the container runtime. `unknown` are the variables
    whose values only the provider knows, such as those from a Secret.
    """

    image: str
    user: int
    cpus: float | None = None
    memory: int | None = None
    shared_memory: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


class ProviderSection(Section):
    """The section of one kind of provider. Each kind has a subclass of its own."""

    title: ClassVar[str]
    """What messages call this kind of provider."""
    place: ClassVar[frozenset[str]] = frozenset()
    """The keys that say where the machines are. With other values, the existing ones are not found."""

    def describe(self, option: LaunchOptionSettings) -> str:
        """Return a launch option at this provider in a few words, for the summary."""
        raise NotImplementedError

    def container(self, option: LaunchOptionSettings) -> JobContainer | None:  # noqa: ARG002
        """Return the container in which the jobs of a launch option run, or None if they run on a machine."""
        return None

    def longest_wait(self) -> Seconds:
        """Return how long a launched machine may wait for a host. Its boot deadline is later by this time."""
        return 0.0

    def quota_limits(self) -> Mapping[str, int]:
        """Return the configured quotas, as `Offering.quota` names them."""
        return {}


class ProviderSettings(Section):
    """One provider of machines. Exactly one key is set, and names the provider's kind."""

    others = other_names.PROVIDER

    @property
    def kind(self) -> str:
        """The key of its section. Raises NoValueError if it has not exactly one."""
        found = [key for key in type(self).model_fields if getattr(self, key) is not None]
        if len(found) != 1:
            raise NoValueError("kind")
        return found[0]

    @property
    def section(self) -> ProviderSection:
        """Its section."""
        found = getattr(self, self.kind)
        assert isinstance(found, ProviderSection)
        return found


class Settings(Section):
    """The whole of fleet.yaml."""

    others = other_names.FILE

    fleet: FleetName
    """The fleet's name, in the names of runners and the tags of machines."""
    github: GitHubSettings
    """How the controller reaches GitHub, and what it serves there."""
    server: ServerSettings
    """Where the controller listens, and how machines reach it."""
    store: StoreUrl
    """`sqlite:///FILE`, or `postgresql://USER@HOST/DATABASE`."""
    limits: LimitSettings = LimitSettings()
    """Limits of the whole fleet."""
    metrics: MetricsSettings = MetricsSettings()
    """What /metrics shows beside the series of the whole fleet."""
    versions_file: FilePath | None = None
    """A versions.yaml of your own, for what machines install; default: the one of this installation."""
    driver_test_image: ContainerImage | None = None
    """The image with which `driver: install` tests NVIDIA's toolkit; default: Ubuntu from Amazon ECR Public."""
    providers: Annotated[Mapping[ProviderName, ProviderSettings], Field(min_length=1)]
    """Where the machines run, by a name of your choice."""
    skus: Annotated[Mapping[SkuName, SkuSettings], Field(min_length=1)]
    """Kinds of runners by name, at most 500; the name is a label. The first SKU that serves a job gets it."""
