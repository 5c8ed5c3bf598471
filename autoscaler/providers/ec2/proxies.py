"""Keeps the metadata services of machines and containers out of proxies.

boto3 reads HTTPS_PROXY, HTTP_PROXY and NO_PROXY by itself, for EC2 and for the metadata service alike
(botocore's `IMDSFetcher`): a proxy would give this host the proxy's own credentials, or none.
"""

from collections.abc import MutableMapping

NEVER_PROXIED = ("169.254.169.254", "[fd00:ec2::254]", "169.254.170.2", "169.254.170.23")
"""EC2's metadata service, those of ECS and of EKS pod identities (AWS SDKs reference guide)."""


def keep_metadata_direct(environment: MutableMapping[str, str]) -> None:
    """Add the metadata services to NO_PROXY."""
    # urllib takes the lower-case name before the other one.
    known = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    if known.strip() != "*":
        environment["no_proxy"] = ",".join(filter(None, [known, *NEVER_PROXIED]))
