"""Warns of pods with an image for GPUs that they do not request. Reads the file as written.

Nothing asks the registry: `check` looks for the words that vendors and frameworks use in names
and tags: `nvidia/cuda`, `pytorch/pytorch:2.9.0-cuda12.8`, `vllm/vllm-openai:cu129`, `rocm/pytorch`,
`tensorflow/tensorflow:2.20.0-gpu`, and all of nvcr.io.
"""

import re
from collections.abc import Iterator

from autoscaler.config.checks import text
from autoscaler.config.document import Document, Node
from autoscaler.config.problems import KeyPath, Problem, show
from autoscaler.config.provider_kind import options_of
from autoscaler.config.sku_settings import AcceleratorVendor
from autoscaler.providers.kubernetes.checks.contradictions import KEY
from autoscaler.providers.kubernetes.settings import RUNNER
from autoscaler.providers.kubernetes.values.image_references import (
    is_image_reference,
    registry_of,
    words_of_image,
)

_REGISTRIES = {"nvcr.io": AcceleratorVendor.NVIDIA}

_KINDS = {AcceleratorVendor.NVIDIA: "CUDA", AcceleratorVendor.AMD: "ROCm"}

_CUDA = re.compile(
    r"(?<![a-z])(py|lib|lib64)?(cuda|cudnn|cudf|cugraph|cuml)"  # not `barracuda`
    r"|(?<![a-z0-9])cu(9|1[0-9])[0-9]?(?![a-z0-9])"  # cu118, cu12, cu130
    r"|(?<![a-z])(nvidia|tensorrt|tritonserver|rapidsai|dcgm)(?![a-z])"
)
_ROCM = re.compile(r"(?<![a-z])rocm")
_ANY = re.compile(r"(?<![a-z])gpu(?![a-z])")


def gpu_vendors(image: str) -> frozenset[AcceleratorVendor]:
    """Return the vendors of the GPUs for which an image looks made: several if it may be any of them."""
    words = words_of_image(image).lower()
    found = {_REGISTRIES[one] for one in (registry_of(image).lower(),) if one in _REGISTRIES}
    if _CUDA.search(words):
        found.add(AcceleratorVendor.NVIDIA)
    if _ROCM.search(words):
        found.add(AcceleratorVendor.AMD)
    if not found and _ANY.search(words):
        found |= set(AcceleratorVendor)
    return frozenset(found)


def warnings(document: Document) -> Iterator[Problem]:
    """Return a warning for each image of a runner whose jobs would see no GPU."""
    for name, sku, index, option in options_of(document, KEY):
        wanted = text(sku, "accelerator", "vendor")
        for place, image in _images(option):
            vendors = gpu_vendors(image)
            if not vendors or wanted in vendors:
                continue
            kind = "GPUs" if len(vendors) > 1 else _KINDS[min(vendors)]
            has = "no accelerator" if wanted is None else f"accelerators of {show(wanted)} only"
            what = f"{show(image)} looks like an image for {kind}, and the SKU has {has}: jobs see no GPU"
            vendor = "..." if len(vendors) > 1 else min(vendors)
            fix = f"write accelerator: {{vendor: {vendor}, count: ...}} in the SKU, or use another image"
            path = ("skus", name, "on", index, "pod", *place)
            yield document.problem(path, what, fix, warning=True)


def _images(option: Node) -> Iterator[tuple[KeyPath, str]]:
    """Yield the image of the runner's container, which its overlay may replace."""
    path: KeyPath = ("image",)
    containers = option.get("pod", "overlay", "spec", "containers")
    for index, one in containers.items() if containers is not None else ():
        if text(one, "name") == RUNNER and one.child("image") is not None:
            path = ("overlay", "spec", "containers", index, "image")
    image = text(option, "pod", *path)
    if is_image_reference(image):
        yield path, str(image)
