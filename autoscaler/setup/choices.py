"""What the owner of a new fleet chooses, and the text of its fleet.yaml. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from autoscaler.config.importing.fleet_text import scalar
from autoscaler.model.identifiers import is_loopback

SCHEMA = "fleet.schema.json"
KEY, SECRET, TOKENS = "github-app.pem", "webhook-secret", "admin-token"
CA, CA_KEY, CERTIFICATE, CERTIFICATE_KEY = "ca.pem", "ca.key", "server.pem", "server.key"

NO_WEBHOOK = "  webhook: none\n"
WEBHOOK = f"  webhook_secret_file: {SECRET}\n"

DEFAULT_GROUP = "Default"


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of an instance type, whose driver each machine installs."""

    vendor: str
    count: int


@dataclass(frozen=True, slots=True)
class Ec2Choice:
    """Machines on EC2. Without `stock`, they start from an image that `autoscaler images bake` makes.

    `identity_certificates` are files with certificates beside AWS's own.
    """

    region: str
    subnets: tuple[str, ...]
    security_groups: tuple[str, ...]
    instance_type: str
    stock: str | None = None
    gpus: Gpus | None = None
    identity_certificates: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The label of the first SKU."""
        return f"linux.{self.instance_type}"

    def text(self) -> str:
        """Return the parts `providers` and `skus`."""
        signers = _list(self.identity_certificates)
        identity = f"      identity_certificates: {signers}\n" if self.identity_certificates else ""
        return f"""\
providers:
  {self.region}:
    ec2:
      region: {scalar(self.region)}
      subnets: {_list(self.subnets)}
      security_groups: {_list(self.security_groups)}
{identity}skus:
  {self.label}:   # jobs ask for it with runs-on: [self-hosted, {self.label}]
    on:
      - {{provider: {self.region}, instance_types: [{scalar(self.instance_type)}], capacity: [spot, on-demand]}}
{self._image()}    disk_gb: 150
"""

    def _image(self) -> str:
        if self.stock is None:
            return """\
    image: {name: "autoscaler/linux-gpu-x64-*"}   # what `autoscaler images bake linux-gpu` makes
"""
        image = f"""\
    image: {{stock: {self.stock}}}   # a baked image boots sooner: docs/images.md
"""
        if self.gpus is None:
            return image
        return f"""\
{image}    accelerator: {{vendor: {self.gpus.vendor}, count: {self.gpus.count}}}
    driver: install   # each machine installs it before its job
"""


@dataclass(frozen=True, slots=True)
class KubernetesChoice:
    """Pods on Kubernetes. `context` is empty for the cluster in which the controller runs."""

    context: str
    namespace: str
    image: str

    @property
    def label(self) -> str:
        """The label of the first SKU."""
        return "linux.gpu.1"

    def text(self) -> str:
        """Return the parts `providers` and `skus`."""
        context = f"context: {scalar(self.context)}, " if self.context else ""
        return f"""\
providers:
  cluster:
    kubernetes: {{{context}namespace: {scalar(self.namespace)}}}
skus:
  {self.label}:   # jobs ask for it with runs-on: [self-hosted, {self.label}]
    on:
      - provider: cluster
        price: 1.0   # what a pod counts in limits.dollars_per_hour
        pod:
          image: {scalar(self.image)}
          resources: {{cpu: "8", memory: 32Gi}}
    accelerator: {{vendor: nvidia, count: 1}}
"""


@dataclass(frozen=True, slots=True)
class Choices:
    """The whole fleet. `repository` is None for an organization, whose `repositories` are globs' names.

    `personal`: the owner is a user. `webhook` is the URL of /webhook, or None.
    """

    fleet: str
    api_url: str
    owner: str
    repository: str | None
    personal: bool
    runner_group: str
    repositories: tuple[str, ...]
    machines: Ec2Choice | KubernetesChoice
    public_url: str
    webhook: str | None

    @property
    def scope(self) -> str:
        """The scope, as `Scope.key`."""
        return f"repo:{self.owner}/{self.repository}" if self.repository else f"org:{self.owner}"

    @property
    def host(self) -> str:
        """The host by whose name machines reach the controller."""
        return host_of(self.public_url)

    def text(self, app_id: int) -> str:
        """Return the fleet.yaml."""
        port = urlsplit(self.public_url).port or 443
        address = self.host if is_loopback(self.host) else "0.0.0.0"  # noqa: S104 - machines connect
        return f"""\
# yaml-language-server: $schema={SCHEMA}
# docs/configuration.md explains the keys. File names are relative to this folder.
fleet: {scalar(self.fleet)}
github:
  api_url: {scalar(self.api_url)}
  apps:
    - {{id: {app_id}, private_key_file: {KEY}}}
{WEBHOOK if self.webhook else NO_WEBHOOK}  scopes:
    - {{{self._scope()}}}
server:
  listen: {address}:{port}
  tls: {{certificate_file: {CERTIFICATE}, key_file: {CERTIFICATE_KEY}, ca_file: {CA}}}
  public_url: {scalar(self.public_url)}   # machines must reach it
{webhook_listen(self.public_url) if self.webhook else ""}  admin_token_file: {TOKENS}
store: sqlite:///state.db
limits: {{machines: 10, dollars_per_hour: 20}}
{self.machines.text()}"""

    def _scope(self) -> str:
        if self.repository is not None:
            return f"repo: {scalar(f'{self.owner}/{self.repository}')}"
        group = f", runner_group: {scalar(self.runner_group)}"
        only = f", repositories: {_list(self.repositories)}" if self.repositories else ""
        return f"org: {scalar(self.owner)}{group}{only}"


def webhook_listen(public_url: str) -> str:
    """Return the line under `server` with which a proxy on this host reaches /webhook alone (deploy/proxy)."""
    port = 8081 if urlsplit(public_url).port == 8080 else 8080
    return f"  webhook_listen: 127.0.0.1:{port}   # for a proxy with a public certificate\n"


def host_of(url: str) -> str:
    """Return the host name or the address in a URL."""
    return urlsplit(url).hostname or ""


def _list(values: Sequence[str]) -> str:
    return json.dumps(list(values))
