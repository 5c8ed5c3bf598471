"""Images for GPUs in pods that request none: `check` warns."""

import pytest

from autoscaler.config.settings.sku import AcceleratorVendor
from autoscaler.providers.kubernetes.checks.contradictions import gpu_vendors
from tests.config.fleet_file import Folder, pods
from tests.config.test_kubernetes_contradictions import POD

NVIDIA, AMD = AcceleratorVendor.NVIDIA, AcceleratorVendor.AMD


@pytest.mark.parametrize(
    ("image", "vendors"),
    [
        ("nvidia/cuda:12.8.1-base-ubuntu24.04", {NVIDIA}),
        ("docker.io/nvidia/cudagl:11.3", {NVIDIA}),
        ("nvcr.io/acme/anything:1", {NVIDIA}),
        ("pytorch/pytorch:2.9.0-cuda12.8-cudnn9-devel", {NVIDIA}),
        ("pytorch/manylinux2_28-builder:cuda12.6", {NVIDIA}),
        ("ghcr.io/acme/runner:CUDA-12", {NVIDIA}),
        ("registry.example/runner-cuda:12.8", {NVIDIA}),
        ("registry.example:5000/libcudnn9", {NVIDIA}),
        ("vllm/vllm-openai:cu129", {NVIDIA}),
        ("123.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6-gpu-py312-cu126-ec2", {NVIDIA}),
        ("acme/runner:cu12", {NVIDIA}),
        ("acme/nvidia-runner", {NVIDIA}),
        ("rocm/pytorch:rocm7.2", {AMD}),
        ("registry.example/runner-rocm:7.2", {AMD}),
        ("acme/runner:cuda12.8-rocm7", {NVIDIA, AMD}),
        ("tensorflow/tensorflow:2.20.0-gpu", {NVIDIA, AMD}),
        ("ghcr.io/actions/actions-runner:2.338.0", set()),
        ("acme/barracuda:1", set()),
        ("acme/focus:2", set()),
        ("acme/runner:cu", set()),
        ("cuda.example/runner:1", set()),
        ("gpu.example:5000/runner@sha256:" + "c0" * 32, set()),
        ("acme/runner:cpu", set()),
        ("i", set()),
    ],
)
def test_names_and_tags_show_for_whose_gpus_an_image_is(
    image: str, vendors: set[AcceleratorVendor]
) -> None:
    assert gpu_vendors(image) == vendors


@pytest.mark.parametrize(
    ("pod", "key", "accelerator", "what"),
    [
        ("image: 'nvidia/cuda:12'", "image", "", "for CUDA, and the SKU has no accelerator: jobs"),
        (
            "image: 'nvidia/cuda:12'",
            "image",
            "amd",
            'for CUDA, and the SKU has accelerators of "amd"',
        ),
        ("image: 'rocm/dev'", "image", "nvidia", "for ROCm, and the SKU has accelerators of"),
        ("image: 'acme/runner-gpu'", "image", "", "for GPUs, and the SKU has no accelerator"),
        (
            "image: i, overlay: {spec: {containers: [{name: runner, image: nvcr.io/a/b}]}}",
            "overlay.spec.containers[0].image",
            "",
            "for CUDA, and the SKU has no accelerator",
        ),
    ],
)
def test_an_image_for_gpus_without_them_is_warned_of(
    folder: Folder, pod: str, key: str, accelerator: str, what: str
) -> None:
    wanted = f"\n    accelerator: {{vendor: {accelerator}, count: 1}}" if accelerator else ""
    [warning] = folder.load(pods((POD, f"{{{pod}}}")) + wanted).warnings
    assert warning.key == f"skus.gpu.on[0].pod.{key}"
    assert what in warning.what
    assert "in the SKU, or use another image" in warning.fix


@pytest.mark.parametrize(
    ("image", "accelerator"),
    [("nvidia/cuda:12", "nvidia"), ("acme/runner-gpu", "amd"), ("rocm/dev", "amd"), ("i", "")],
)
def test_other_images_are_not(folder: Folder, image: str, accelerator: str) -> None:
    wanted = f"\n    accelerator: {{vendor: {accelerator}, count: 1}}" if accelerator else ""
    assert folder.load(pods((POD, f"{{image: '{image}'}}")) + wanted).warnings == ()
