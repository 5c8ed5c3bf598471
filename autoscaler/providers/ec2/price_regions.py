"""Which endpoint lists a region's prices, and whether they are in dollars.

The Price List Query API has endpoints in us-east-1, eu-central-1, ap-south-1 and cn-northwest-1
(AWS Billing User Guide, "Using the AWS Price List Query API"; botocore's endpoints). The choice is
the same as Karpenter's (karpenter-provider-aws, pkg/providers/pricing).
"""

_NOT_IN_DOLLARS = ("cn-", "eusc-")
"""China's partition lists prices in yuan, the European Sovereign Cloud in euros."""

_NO_PRICING_API = (*_NOT_IN_DOLLARS, "us-gov-", "us-iso", "eu-iso")
"""Also GovCloud and the isolated partitions: their credentials are not valid at other endpoints."""


def pricing_region(region: str) -> str | None:
    """Return the region whose Pricing API lists this region's prices in dollars, or None."""
    if region.startswith(_NO_PRICING_API):
        return None
    if region.startswith("ap-"):
        return "ap-south-1"
    return "eu-central-1" if region.startswith("eu-") else "us-east-1"


def has_spot_dollars(region: str) -> bool:
    """Return True if DescribeSpotPriceHistory answers in dollars in this region."""
    return not region.startswith(_NOT_IN_DOLLARS)
