"""The proxy of the environment: which requests to the API server use it."""

from pathlib import Path

import pytest

from autoscaler.providers.kubernetes.api.credentials import environment_proxy, new_client
from tests.providers.kubernetes_pods import make_settings

PROXY = "http://proxy.example:3128"
OTHER = "http://other.example:3128"


@pytest.fixture(autouse=True)
def _proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "NO_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    monkeypatch.setenv("NO_PROXY", "inside.example")


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("https://api.example:6443", PROXY),
        ("https://api.inside.example:6443", None),
        ("http://api.example:8080", None),
    ],
)
def test_a_host_uses_the_proxy_of_its_scheme_unless_it_is_excepted(
    url: str, proxy: str | None
) -> None:
    assert environment_proxy(url) == proxy


@pytest.mark.parametrize(("extra", "proxy"), [("", PROXY), (f"proxy-url: {OTHER}", OTHER)])
async def test_the_proxy_of_the_kubeconfig_comes_first_and_requests_look_for_no_other(
    tmp_path: Path, extra: str, proxy: str
) -> None:
    """Reading the environment before each request takes longer than the request."""
    file = tmp_path / "kubeconfig"
    file.write_text(
        f"""
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "https://api.example:6443", {extra}}}}}]
users: [{{name: u, user: {{token: t}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
"""
    )
    client = await new_client(make_settings(context="c", kubeconfig=file))
    assert client.configuration.proxy == proxy
    session = client.rest_client._create_pool_manager()
    assert not session.trust_env
    await session.close()
    await client.close()
