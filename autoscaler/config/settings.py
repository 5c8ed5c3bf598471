"""The structure of fleet.yaml: every key with its type and default.

A type here validates one value by itself. `checks` validates combinations of values, on the file as
written, so that one wrong key hides no other. Only `load` creates Settings. They are frozen and
contain no secret, only the names of files with secrets.
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
    """The App ID."""
    private_key_file: FilePath
    """The App's private key, a PEM file."""


class ScopeSettings(Section):
    """Where runners are registered: an organization or a repository."""

    org: shapes.Owner | None = None
    """An organization; or `repo`."""
    repo: shapes.RepositoryName | None = None
    """A repository as `owner/name`; or `org`."""
    runner_group: Text = "Default"
    """The runner group of the runners."""
    repositories: Annotated[tuple[Glob, ...], Field(min_length=1)] = ("*",)
    """The organization's repositories to serve: globs over `owner/name`."""


class Registrations(Section):
    """A token bucket for each account's runner registrations at GitHub."""

    burst: Positive = 25
    """How many at once."""
    per_second: Annotated[float, Field(gt=0, le=1e6)] = 2.5
    """How many a second on average: about 2.5 for each App, 5 at most for one account."""


class GitHubSettings(Section):
    """How GitHub is reached, and what is served there."""

    api_url: shapes.SecureUrl = "https://api.github.com"
    """The REST API; for GitHub Enterprise Server `https://HOST/api/v3`."""
    apps: Annotated[tuple[App, ...], Field(min_length=1)]
    """The GitHub Apps; several share the registrations."""
    webhook_secret_file: FilePath
    """A file with one webhook secret per line: the old and the new one during a rotation."""
    scopes: Annotated[tuple[ScopeSettings, ...], Field(min_length=1)]
    """The organizations and repositories to serve; the first that covers a job gives the runner group."""
    registrations: Registrations = Registrations()
    """How fast the controller registers runners."""


class Tls(Section):
    """The server's certificate."""

    certificate_file: FilePath
    """The certificate and its intermediates, PEM."""
    key_file: FilePath
    """The certificate's private key, PEM."""
    ca_file: FilePath | None = None
    """The CA certificate with which machines check the server's, PEM; default: those of their system."""


class ServerSettings(Section):
    """Where the controller listens, and how machines reach it."""

    listen: shapes.ListenAddress
    """`host:port` of /bootstrap, /metrics, /healthz, /readyz and /admin."""
    tls: Tls | None = None
    """The server's certificate. Without it the server speaks plain HTTP: on loopback, or with `insecure`."""
    insecure: bool = False
    """Allow plain HTTP although other hosts can connect, such as behind a proxy that terminates TLS."""
    public_url: shapes.PublicUrl
    """The URL under which machines reach the controller."""
    webhook_listen: shapes.ListenAddress | None = None
    """`host:port` of /webhook alone, plain HTTP; without it, /webhook is on `listen`."""
    admin_token_file: FilePath | None = None
    """A file with one operator's token per line; without it there is no /admin."""
    metrics_token_file: FilePath | None = None
    """A file with one token per line; without it, anyone who reaches `listen` may read /metrics."""


class LimitSettings(Section):
    """Limits of the whole fleet."""

    machines: Count | None = None
    """The largest number of machines; default: no limit."""
    dollars_per_hour: Dollars | None = None
    """The most that all machines may cost in an hour; default: no limit."""


class TokenBucket(Section):
    """The token bucket of one EC2 API."""

    burst: Positive
    """How many at once."""
    per_second: Annotated[float, Field(gt=0, le=1e6)]
    """How many a second on average."""


class Ec2Settings(Section):
    """Machines on EC2, in one region."""

    region: shapes.Region
    """The AWS region."""
    subnets: Annotated[tuple[shapes.SubnetId, ...], Field(min_length=1)]
    """The subnets of the machines; several of one zone share its machines."""
    security_groups: Annotated[tuple[shapes.SecurityGroupId, ...], Field(min_length=1)]
    """The security groups of the machines."""
    instance_profile: Name | None = None
    """The name of the machines' instance profile; default: none."""
    identity_certificates: tuple[FilePath, ...] = ()
    """PEM files with further certificates that sign instance identity documents, beside AWS's own."""
    interruption_queue: shapes.SecureUrl | None = None
    """The URL of the SQS queue with EventBridge's events; without it there are no interruption notices."""
    account: shapes.Account | None = None
    """The account of the machines; default: that of the credentials."""
    prices: Mapping[shapes.InstanceType, Dollars] = Field(default_factory=dict)
    """Linux on-demand prices in dollars an hour by instance type; they replace AWS's prices."""
    spot_price_factor: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The part of the on-demand price at which a spot machine counts."""
    quotas: Mapping[shapes.Quota, Count] = Field(default_factory=dict)
    """vCPUs by family (`G and VT`: spot and on-demand each) or quota (`spot/G and VT`)."""
    request_buckets: Mapping[Name, TokenBucket] = Field(default_factory=dict)
    """The account's limits of requests by API (`CreateFleet`), if they are not EC2's usual ones."""
    resource_buckets: Mapping[Name, TokenBucket] = Field(default_factory=dict)
    """The account's limits of machines in requests by API (`CreateFleet`)."""


class KubernetesSettings(Section):
    """Pods in one namespace of one cluster."""

    context: Text
    """The kubeconfig context."""
    namespace: Name
    """The namespace of the runner pods."""


class ProviderSettings(Section):
    """One provider of machines: exactly one of the keys."""

    ec2: Ec2Settings | None = None
    """Machines on EC2."""
    kubernetes: KubernetesSettings | None = None
    """Pods on Kubernetes."""


class Settings(Section):
    """The whole of fleet.yaml."""

    fleet: shapes.FleetName
    """The fleet's name, in the names of runners and the tags of machines."""
    github: GitHubSettings
    """How the controller reaches GitHub, and what it serves there."""
    server: ServerSettings
    """Where the controller listens, and how machines reach it."""
    store: shapes.StoreUrl
    """`sqlite:///FILE`, or `postgresql://USER@HOST/DATABASE`."""
    limits: LimitSettings = LimitSettings()
    """Limits of the whole fleet."""
    providers: Annotated[Mapping[shapes.ProviderName, ProviderSettings], Field(min_length=1)]
    """Where the machines run, by a name of your choice."""
    skus: Annotated[Mapping[shapes.SkuName, SkuSettings], Field(min_length=1)]
    """Kinds of runners by name; the name is a label. The first SKU that serves a job gets it."""
