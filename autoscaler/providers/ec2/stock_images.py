"""Which images of EC2 the words of `image.stock` in fleet.yaml mean.

By name and owner, as for every image: the controller needs `ec2:DescribeImages` only, and no access to AWS
Systems Manager, whose public parameters name the same images.
"""

from autoscaler.config.settings.sku import StockImage
from autoscaler.model.catalogue import Architecture

_CANONICAL = {"us-gov": "513442679011", "cn": "837727238323"}
_CANONICAL_ELSEWHERE = "099720109477"
"""Canonical's account in each partition (Ubuntu on AWS documentation, "Find Ubuntu images on AWS")."""

_NAMES = {
    StockImage.UBUNTU_24_04: (
        "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-{}-server-*",
        {Architecture.X64: "amd64", Architecture.ARM64: "arm64"},
    ),
    # Not al2023-ami-minimal-* and al2023-ami-ecs-*.
    StockImage.AMAZON_LINUX_2023: (
        "al2023-ami-2023.*-kernel-6.1-{}",
        {Architecture.X64: "x86_64", Architecture.ARM64: "arm64"},
    ),
}
"""The names of the images, with the word for each architecture: globs over those in versions.yaml."""


def stock_image(stock: StockImage, arch: Architecture, region: str) -> tuple[str, str]:
    """Return the name, a glob, and the owner of a stock image."""
    name, words = _NAMES[stock]
    return name.format(words[arch]), _owner(stock, region)


def _owner(stock: StockImage, region: str) -> str:
    if stock is not StockImage.UBUNTU_24_04:
        return "amazon"
    partition = region.rpartition("-")[0].rpartition("-")[0]
    return _CANONICAL.get(partition, _CANONICAL_ELSEWHERE)
