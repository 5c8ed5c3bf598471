"""The shape of fleet.yaml: every key, its type and what it is when left out.

A value here is right by itself; whether two values go together is decided in `checks`, on the
file as written, so that one wrong key hides no other. Only `load` makes Settings. They are
frozen and hold no secret: secrets stand in files that these name.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from autoscaler.config import shapes
from autoscaler.config.shapes import (
    Count,
    Dollars,
    FilePath,
    Glob,
    Name,
    Positive,
    Section,
    Text,
)
from autoscaler.config.sku_settings import SkuSettings


class App(Section):
    """A GitHub App."""

    id: Annotated[int, Field(ge=1)]
    """Its App ID."""
    private_key_file: FilePath
    """Its private key, a PEM file."""


class ScopeSettings(Section):
    """Where runners are registered: an organisation or a repository."""

    org: shapes.Owner | None = None
    """An organisation; or `repo`."""
    repo: shapes.RepositoryName | None = None
    """A repository as `owner/name`; or `org`."""
    runner_group: Text = "Default"
    """The runner group that runners join."""
    repositories: Annotated[tuple[Glob, ...], Field(min_length=1)] = ("*",)
    """Which of the organisation's repositories are served: globs over `owner/name`."""


class Registrations(Section):
    """A token bucket for each account's runner registrations at GitHub."""

    burst: Positive = 25
    """How many at once."""
    per_second: Annotated[float, Field(gt=0, le=1e6)] = 2.5
    """How many a second in the long run: about 2.5 for each App, 5 at most for one account."""


class GitHubSettings(Section):
    """How GitHub is reached, and what is served there."""

    api_url: shapes.SecureUrl = "https://api.github.com"
    """The REST API; for GitHub Enterprise Server `https://HOST/api/v3`."""
    apps: Annotated[tuple[App, ...], Field(min_length=1)]
    """The Apps that act; several share the load of registering runners."""
    webhook_secret_file: FilePath
    """A file with one webhook secret a line: old and new while rotating."""
    scopes: Annotated[tuple[ScopeSettings, ...], Field(min_length=1)]
    """What is served; the first that covers a job gives its runner group."""
    registrations: Registrations = Registrations()
    """How fast runners are registered."""


class Tls(Section):
    """The server's certificate."""

    certificate_file: FilePath
    """The certificate and its intermediates, PEM."""
    key_file: FilePath
    """Its private key, PEM."""
    ca_file: FilePath | None = None
    """The authority that machines trust for it, PEM; left out, their system's own."""


class ServerSettings(Section):
    """Where the controller listens, and how machines reach it."""

    listen: shapes.ListenAddress
    """`host:port` of /bootstrap, /metrics, /healthz, /readyz and /admin."""
    tls: Tls | None = None
    """Left out, the server speaks plain HTTP: on loopback, or with `insecure`."""
    insecure: bool = False
    """Plain HTTP although others can reach it, such as behind a proxy that ends TLS."""
    public_url: shapes.PublicUrl
    """What a booting machine calls."""
    webhook_listen: shapes.ListenAddress | None = None
    """`host:port` of /webhook alone, plain HTTP; left out, /webhook is on `listen`."""
    admin_token_file: FilePath | None = None
    """A file with one operator's token a line; left out, /admin is not there."""
    metrics_token_file: FilePath | None = None
    """A file with one token a line; left out, anyone who reaches `listen` may read /metrics."""


class LimitSettings(Section):
    """Caps over the whole fleet."""

    machines: Count | None = None
    """How many machines at once; left out, no cap."""
    dollars_per_hour: Dollars | None = None
    """What they may cost together in an hour; left out, no cap."""


class TokenBucket(Section):
    """How fast one API of EC2 may be used."""

    burst: Positive
    """How many at once."""
    per_second: Annotated[float, Field(gt=0, le=1e6)]
    """How many a second in the long run."""


class Ec2Settings(Section):
    """Machines on EC2, in one region."""

    region: shapes.Region
    """The AWS region."""
    subnets: Annotated[tuple[shapes.SubnetId, ...], Field(min_length=1)]
    """Where machines start; several in a zone share it."""
    security_groups: Annotated[tuple[shapes.SecurityGroupId, ...], Field(min_length=1)]
    """Their security groups."""
    instance_profile: Name | None = None
    """Their instance profile's name; left out, none."""
    identity_certificates: tuple[FilePath, ...] = ()
    """PEM files that sign instance identity documents, beside AWS's own for the region."""
    interruption_queue: shapes.SecureUrl | None = None
    """The URL of the SQS queue with EventBridge's events; left out, interruptions are not heard of."""
    account: shapes.Account | None = None
    """The account that machines must be in; left out, that of the credentials."""
    prices: Mapping[shapes.InstanceType, Dollars] = Field(default_factory=dict)
    """Linux on-demand dollars an hour by instance type, before the built-in table."""
    spot_price_factor: Annotated[float, Field(gt=0, le=1)] = 1.0
    """What spot counts at, as a part of the on-demand price."""
    quotas: Mapping[shapes.Quota, Count] = Field(default_factory=dict)
    """vCPUs by family (`G and VT`: spot and on-demand each) or quota (`spot/G and VT`)."""
    request_buckets: Mapping[Name, TokenBucket] = Field(default_factory=dict)
    """Requests to EC2 by API (`CreateFleet`), where the account's limits are not EC2's usual ones."""
    resource_buckets: Mapping[Name, TokenBucket] = Field(default_factory=dict)
    """Machines in requests by API (`CreateFleet`), likewise."""


class KubernetesSettings(Section):
    """Pods in one namespace of one cluster."""

    context: Text
    """The kubeconfig context."""
    namespace: Name
    """Where runner pods stand."""


class ProviderSettings(Section):
    """One place that machines come from: exactly one of the keys."""

    ec2: Ec2Settings | None = None
    """Machines on EC2."""
    kubernetes: KubernetesSettings | None = None
    """Pods on Kubernetes."""


class Settings(Section):
    """The whole of fleet.yaml."""

    fleet: shapes.FleetName
    """The fleet's name, in the names of runners and the tags of machines."""
    github: GitHubSettings
    """How GitHub is reached, and what is served there."""
    server: ServerSettings
    """Where the controller listens, and how machines reach it."""
    store: shapes.StoreUrl
    """`sqlite:///FILE`, or `postgresql://USER@HOST/DATABASE`."""
    limits: LimitSettings = LimitSettings()
    """Caps over the whole fleet."""
    providers: Annotated[Mapping[shapes.ProviderName, ProviderSettings], Field(min_length=1)]
    """Where machines come from, by a name of your choice."""
    skus: Annotated[Mapping[shapes.SkuName, SkuSettings], Field(min_length=1)]
    """Kinds of runners by name, which is a label; the first that serves a job wins."""
