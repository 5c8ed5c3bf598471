"""The proxy that the environment names for GitHub: HTTPS_PROXY, HTTP_PROXY and NO_PROXY.

aiohttp's own `trust_env` would also read ~/.netrc, and refuse every request with our token where that
has an entry for GitHub's host (`ClientSession._request`: "Cannot combine AUTHORIZATION header").
"""

from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass


def proxy_for(url: str) -> str | None:
    """Return the proxy's URL for requests to this one, or None to connect directly."""
    proxies = getproxies_environment()
    parts = urlsplit(url)
    if proxy_bypass(parts.netloc, proxies):
        return None
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy:
        return None
    # As curl, a proxy without a scheme is one that is spoken to in plain HTTP.
    return proxy if "://" in proxy else f"http://{proxy}"
