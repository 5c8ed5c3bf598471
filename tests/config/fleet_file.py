"""A fleet.yaml in a separate folder, with every file that it names."""

from pathlib import Path

import pytest

from autoscaler.app.preflight import load_for_service, preflight
from autoscaler.config import Configuration, ConfigurationError, Problem, load
from autoscaler.config.settings.sku import SkuSettings
from autoscaler.providers.ec2.configuration import Ec2OptionKeys
from autoscaler.providers.kubernetes.configuration import KubernetesOptionKeys
from autoscaler.providers.registry import provider_kinds
from tests.config.keys import authority, certificate, curve_key, pem, rsa_key

EXAMPLE = Path(__file__).parents[2] / "examples" / "fleet.yaml"
KUBERNETES_EXAMPLE = EXAMPLE.with_name("kubernetes.yaml")

MINIMAL = """\
fleet: ci
github:
  apps: [{id: 1, private_key_file: app.pem}]
  webhook_secret_file: secret
  scopes: [{org: acme}]
server:
  listen: 127.0.0.1:0
  public_url: http://127.0.0.1:8443
store: sqlite:///state.db
providers:
  east:
    ec2: {region: us-east-1, subnets: [subnet-0a], security_groups: [sg-0a]}
skus:
  gpu:
    on: [{provider: east, instance_types: [g5.xlarge]}]
    image: {name: "runner-*"}
"""

PODS = (
    MINIMAL[: MINIMAL.index("providers:")]
    + """\
providers:
  cluster:
    kubernetes: {context: c, namespace: runners}
skus:
  gpu:
    on:
      - {provider: cluster, pod: {image: i}}
"""
)

NAMED_FILES = {
    "github-app.pem": pem(rsa_key()),
    "app.pem": pem(rsa_key()),
    "webhook-secret": f"{'old-secret' * 2}\n{'new-secret' * 2}\n",
    "secret": "only-secret" * 2,
    "server.pem": certificate(
        curve_key(), "fleet.internal.example", signed_by=curve_key("authority")
    ),
    "server.key": pem(curve_key()),
    "ca.pem": authority(curve_key("authority")),
}


class Folder:
    """Writes fleet.yaml and reads it back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name, content in NAMED_FILES.items():
            (path / name).write_text(content)
            (path / name).chmod(0o600)

    def load(self, text: str) -> Configuration:
        """Raises ConfigurationError."""
        file = self.path / "fleet.yaml"
        file.write_text(text)
        return load(file, provider_kinds())

    def problems(self, text: str) -> list[Problem]:
        """Return the errors. Fails if there are none."""
        with pytest.raises(ConfigurationError) as caught:
            self.load(text)
        return list(caught.value.problems)

    def refused(self, text: str) -> list[Problem]:
        """Return the errors that `check` prints. Fails if there are none."""
        (self.path / "fleet.yaml").write_text(text)
        return self.refused_as_it_is()

    def refused_as_it_is(self, file: Path | None = None) -> list[Problem]:
        """Return the errors that `check` prints for the existing file. Fails if there are none."""
        with pytest.raises(ConfigurationError) as caught:
            load_for_service(file or self.path / "fleet.yaml")
        return list(caught.value.problems)

    def problem(self, text: str) -> Problem:
        """Return the only error."""
        found = self.problems(text)
        assert len(found) == 1, "\n".join(map(str, found))
        return found[0]


def on_ec2(sku: SkuSettings, option: int = 0) -> Ec2OptionKeys:
    """A launch option, with the keys that one on EC2 has."""
    found = sku.launch_options[option]
    assert isinstance(found, Ec2OptionKeys)
    return found


def on_kubernetes(sku: SkuSettings, option: int = 0) -> KubernetesOptionKeys:
    """A launch option, with the keys that one on Kubernetes has."""
    found = sku.launch_options[option]
    assert isinstance(found, KubernetesOptionKeys)
    return found


def filled(text: str) -> str:
    """Return the output of `import --whole` with every placeholder replaced as its text says."""
    for placeholder, own in (
        ("YOUR-APP-ID", "1234"),
        ("YOUR-ORGANIZATION", "acme"),
        ("YOUR-HOST", "fleet.internal.example"),
        ("YOUR-SUBNET-ID", "subnet-0a"),
        ("YOUR-SECURITY-GROUP-ID", "sg-0a"),
    ):
        text = text.replace(placeholder, own)
    return text


def changed(*pairs: tuple[str, str]) -> str:
    """Return MINIMAL with texts replaced. Fails if a text is missing."""
    text = MINIMAL
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def unintended(configuration: Configuration) -> list[Problem]:
    """Return the warnings, except those of the sample values that the examples share with the README."""
    return [one for one in configuration.warnings if "sample value" not in one.what]


def unserved(configuration: Configuration, *, files: bool = True) -> tuple[Problem, ...]:
    """Return the problems of a valid configuration that cannot be served."""
    return preflight(configuration, provider_kinds(), files=files)


def pods(*pairs: tuple[str, str]) -> str:
    """PODS with texts replaced; each must be there."""
    text = PODS
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text
