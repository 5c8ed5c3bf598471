"""Warns of pods with an image for GPUs that they do not request.

Nothing asks the registry: `check` looks for the words that vendors and frameworks use in names
and tags: `nvidia/cuda`, `pytorch/pytorch:2.9.0-cuda12.8`, `vllm/vllm-openai:cu129`, `rocm/pytorch`,
`tensorflow/tensorflow:2.20.0-gpu`, and all of nvcr.io.
"""

import re
from collections.abc import Iterator

from autoscaler.config.configuration import Configuration, run_checks
from autoscaler.config.problems import KeyPath, Problem, show
from autoscaler.config.settings.sku import AcceleratorVendor
from autoscaler.providers.kubernetes.checks.contradictions import PodOf, pod_of, pods_of
from autoscaler.providers.kubernetes.configuration import Pod
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


def check(configuration: Configuration) -> Iterator[Problem]:
    """Return a warning for each image of a runner whose jobs would see no GPU."""
    for one in pods_of(configuration):
        yield from run_checks((_image,), configuration, one)


def _image(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    wanted = one.sku.accelerator.vendor if one.sku.accelerator is not None else None
    place, image = _image_of(pod_of(one))
    vendors = gpu_vendors(image) if is_image_reference(image) else frozenset()
    if not vendors or wanted in vendors:
        return
    kind = "GPUs" if len(vendors) > 1 else _KINDS[min(vendors)]
    has = "no accelerator" if wanted is None else f"accelerators of {show(wanted)} only"
    what = f"{show(image)} looks like an image for {kind}, and the SKU has {has}: jobs see no GPU"
    vendor = "..." if len(vendors) > 1 else min(vendors)
    fix = f"write accelerator: {{vendor: {vendor}, count: ...}} in the SKU, or use another image"
    yield configuration.warning((*one.path, "pod", *place), what, fix)


def _image_of(pod: Pod) -> tuple[KeyPath, str]:
    """Return the image of the runner's container, which its overlay may replace, and its place."""
    found: tuple[KeyPath, str] = ("image",), pod.image
    spec = pod.overlay.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    for index, one in enumerate(containers if isinstance(containers, list) else ()):
        if isinstance(one, dict) and one.get("name") == RUNNER and "image" in one:
            found = ("overlay", "spec", "containers", index, "image"), one["image"]
    return found
