"""Warns of SKUs with an image from AWS or a vendor, because it does not contain GitHub's runner."""

from collections.abc import Iterator

from autoscaler.config.problems import Problem, show
from autoscaler.config.reading.document import Document
from autoscaler.config.settings.fleet import Settings
from autoscaler.config.settings.sku import SkuSettings
from autoscaler.model.wording import counted

STOCK_OWNERS = frozenset({"amazon", "aws-marketplace"})

WHAT = "is a stock image, without GitHub's runner in /opt/actions-runner"
FIX = "build your own image from it with the runner and Python (docs/agent.md)"


def stock_images(document: Document, settings: Settings) -> Iterator[Problem]:
    """Return a warning for each stock image, at its first SKU, with the number of other SKUs."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for name, sku in settings.skus.items():
        for image, path in _images(sku):
            found.setdefault(image, []).append(("skus", name, *path))
    for image, paths in found.items():
        others = f" (of {counted(len(paths) - 1, 'more SKU')} too)" if len(paths) > 1 else ""
        yield document.problem(paths[0], f"{show(image)} {WHAT}{others}", FIX, warning=True)


def _images(sku: SkuSettings) -> Iterator[tuple[str, tuple[str, ...]]]:
    image = sku.image
    if image is None:
        return
    if image.owner in STOCK_OWNERS:
        yield image.name, ("image",)
    if image.canary is not None and image.canary.owner in STOCK_OWNERS:
        yield image.canary.name, ("image", "canary")
