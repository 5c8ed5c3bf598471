"""Reads the proxy for GitHub from HTTPS_PROXY, HTTP_PROXY and NO_PROXY.

aiohttp's `trust_env` would also read ~/.netrc. If that file has an entry for GitHub's host, aiohttp
refuses every request with a token (`ClientSession._request`: "Cannot combine AUTHORIZATION header").
"""

from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass


def proxy_for(url: str) -> str | None:
    """Return the URL of the proxy for requests to `url`, or None for a direct connection."""
    proxies = getproxies_environment()
    parts = urlsplit(url)
    if proxy_bypass(parts.netloc, proxies):
        return None
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy:
        return None
    # Without a scheme it is an HTTP proxy, as for curl.
    return proxy if "://" in proxy else f"http://{proxy}"
