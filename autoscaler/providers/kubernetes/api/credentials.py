"""Reads the credentials for an API server, and makes a client of the official library with them.

They come from a context of a kubeconfig file, or from the service account of the pod that the controller runs
in. Both can change while the controller runs: kubelet replaces a pod's token before it expires, a credential
plugin such as `aws eks get-token` answers with another one, an administrator writes another kubeconfig.
"""

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from autoscaler.config.problems import printable
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.kubernetes.api.errors import refusal
from autoscaler.providers.kubernetes.api.kubeconfigs import (
    Entry,
    import_library,
    read_context,
    usual_files,
)
from autoscaler.providers.kubernetes.settings import KubernetesSettings

if TYPE_CHECKING:
    from kubernetes.aio.client import ApiClient, Configuration

CODE = "Kubeconfig"
"""The code of every error in credentials that the API server has not seen, except `NOT_IN_CLUSTER`."""

NOT_IN_CLUSTER = "NotInCluster"
"""The code if the credentials of a pod's service account are missing."""

_ADDRESS = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
"""The API server's address in the environment of each container (kubernetes, `pkg/kubelet/envvars`)."""

BEARER_TOKEN = "BearerToken"  # noqa: S105
"""The name of the token in the library's configuration."""

CONNECTIONS = 60
"""Parallel connections to one API server, watches included."""


async def new_client(settings: KubernetesSettings) -> "ApiClient":
    """Return a client with the current credentials. Raises ProviderError."""
    await asyncio.to_thread(import_library)
    from kubernetes.aio.client import ApiClient, Configuration

    found = Configuration()
    with credential_errors():
        try:
            # A credential plugin that never ends would stop all requests.
            async with asyncio.timeout(settings.timeout):
                await _load(settings, found)
        except TimeoutError as error:
            raise ValueError(f"no credentials within {settings.timeout:g} s") from error
        except (AttributeError, KeyError, TypeError) as error:
            # The library does not check the form of a kubeconfig.
            raise ValueError(f"the kubeconfig is incomplete: {error}") from error
    found.connection_pool_maxsize = CONNECTIONS
    # The controller decides about retries.
    found.retries = None
    if found.proxy is None:
        found.proxy = environment_proxy(found.host)
    # Otherwise aiohttp looks for a proxy and a .netrc file before each request, each time in a thread.
    found.client_session_kwargs = {"trust_env": False}
    with credential_errors():
        return ApiClient(found)


def environment_proxy(url: str) -> str | None:
    """Return the proxy for this URL in the environment (`HTTPS_PROXY`, `NO_PROXY`), or None."""
    address = urlsplit(url)
    if proxy_bypass(address.hostname or ""):
        return None
    return getproxies().get(address.scheme)


def _without_credentials(user: Entry) -> str:
    """Return why a context's user gave no credentials."""
    plugin = user.values.get("exec")
    command = str(plugin.get("command") or "") if isinstance(plugin, dict) else ""
    if not command:
        return f"{user.place} has no token or certificate"
    if shutil.which(command) is None:
        return f"the context's credential plugin {command} is not on this host: install it, or correct PATH"
    return f"the context's credential plugin {command} failed, or answered without a token"


@contextmanager
def credential_errors() -> Iterator[None]:
    """Turn errors in credentials into those of the port: a missing file, or one that cannot be parsed."""
    from kubernetes.aio.config import ConfigException

    try:
        yield
    except (ConfigException, OSError, ValueError) as error:
        raise refusal(FailureClass.CONFIGURATION, CODE, str(error)) from error


async def _load(settings: KubernetesSettings, found: "Configuration") -> None:
    from kubernetes.aio.config.incluster_config import InClusterConfigLoader

    if settings.context is not None or settings.kubeconfig is not None:
        await _load_kubeconfig(settings, found)
        return
    folder = settings.service_account_folder
    _check_service_account(settings, folder)
    # Before a request, the library reads a token again that it read more than a minute ago.
    InClusterConfigLoader(folder / "token", folder / "ca.crt").load_and_set(found)


async def _load_kubeconfig(settings: KubernetesSettings, found: "Configuration") -> None:
    from kubernetes.aio.config import load_kube_config

    file = settings.kubeconfig
    files = [file] if file is not None else usual_files(os.environ)
    shown = printable(str(files[0])) if len(files) == 1 else "KUBECONFIG"
    context = await asyncio.to_thread(read_context, files, settings.context, shown)
    context.server()
    user = context.credentials()
    names = ":".join(map(str, files))
    await load_kube_config(names, settings.context, found, persist_config=False)
    if BEARER_TOKEN not in found.api_key and found.cert_file is None:
        # The library logs the error of a credential plugin, and continues without credentials.
        raise ValueError(await asyncio.to_thread(_without_credentials, user))


def _check_service_account(settings: KubernetesSettings, folder: Path) -> None:
    """Raise ProviderError with everything that a container with a service account has and this host lacks."""
    missing = [f"the variable {name}" for name in _ADDRESS if not os.environ.get(name)]
    missing += [
        f"the file {file}"
        for file in (folder / "token", folder / "ca.crt")
        if not file.is_file() or not file.stat().st_size
    ]
    if missing:
        text = (
            f"providers.{settings.name}.kubernetes has neither context nor kubeconfig, so the controller uses "
            f"its own pod's service account, and this host lacks {', '.join(missing)}"
        )
        raise refusal(FailureClass.CONFIGURATION, NOT_IN_CLUSTER, text)
