"""Makes requests to metadata services bypass proxies.

boto3 uses HTTPS_PROXY, HTTP_PROXY and NO_PROXY also for the metadata service (botocore's
`IMDSFetcher`). Through a proxy, this host would get the credentials of the proxy's host, or none.
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
