"""The kinds of providers. A new kind needs one line here: docs/providers.md."""

from functools import cache
from pkgutil import resolve_name
from typing import Final

from autoscaler.config.provider_kind import ProviderKind

PROVIDERS: Final = (
    "autoscaler.providers.ec2.kind:Ec2Kind",
    "autoscaler.providers.kubernetes.kind:KubernetesKind",
)
"""MODULE:CLASS of each subclass of `ProviderKind`, in the order of the messages that list them."""


@cache
def provider_kinds(names: tuple[str, ...] = PROVIDERS) -> tuple[ProviderKind, ...]:
    """Return one instance of each kind. Raises ImportError, AttributeError or TypeError for a wrong line."""
    return tuple(_kind(name) for name in names)


def _kind(name: str) -> ProviderKind:
    kind = resolve_name(name)()
    if not isinstance(kind, ProviderKind):
        raise TypeError(f"{name} is not a subclass of ProviderKind")
    return kind
