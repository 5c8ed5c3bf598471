"""Warns of SKUs with an image from AWS or a vendor, because it does not contain GitHub's runner."""

from collections.abc import Iterator

from autoscaler.config.configuration import Configuration
from autoscaler.config.problems import Problem, show
from autoscaler.config.settings.sku import SkuSettings
from autoscaler.model.wording import counted

STOCK_OWNERS = frozenset({"amazon", "aws-marketplace"})

WHAT = "is a stock image, without GitHub's runner in /opt/actions-runner"
FIX = "build your own image from it with the runner and Python (docs/agent.md)"


def stock_images(configuration: Configuration) -> Iterator[Problem]:
    """Return a warning for each stock image, at its first SKU, with the number of other SKUs."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for name, sku in configuration.skus():
        for image, path in _images(sku):
            found.setdefault(image, []).append(("skus", name, *path))
    for image, paths in found.items():
        others = f" (of {counted(len(paths) - 1, 'more SKU')} too)" if len(paths) > 1 else ""
        yield configuration.warning(paths[0], f"{show(image)} {WHAT}{others}", FIX)


def _images(sku: SkuSettings) -> Iterator[tuple[str, tuple[str, ...]]]:
    image = getattr(sku, "image", None)
    canary = getattr(image, "canary", None)
    for one, path in ((image, ("image",)), (canary, ("image", "canary"))):
        name = getattr(one, "name", None)
        if name is not None and getattr(one, "owner", None) in STOCK_OWNERS:
            yield name, path
