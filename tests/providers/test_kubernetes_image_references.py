"""Which texts are image references, as the container runtimes parse them."""

import pytest

from autoscaler.providers.kubernetes.values.image_references import is_image_reference

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    "image",
    [
        "runner",
        "runner:6.4",
        "ghcr.io/actions/actions-runner:2.336.0",
        f"ghcr.io/actions/actions-runner@{DIGEST}",
        f"ghcr.io/actions/actions-runner:2.336.0@{DIGEST}",
        "localhost:5000/runner__rocm/a--b:1_2.x",
        "[2001:db8::1]:5000/runner",
        "Registry.Example/runner",
        "registry.example/" + "r" * 255 + ":" + "1" * 128,
        "localhost/" + "r" * 255,
    ],
)
def test_an_image_reference(image: str) -> None:
    assert is_image_reference(image)


@pytest.mark.case(
    "an image reference that no container runtime can parse, such as one in upper case",
    topic="Operators' files",
    source="distribution/reference: grammar",
)
@pytest.mark.parametrize(
    "image",
    [
        "",
        "https://ghcr.io/actions/actions-runner",
        "docker://runner:6.4",
        "runner: 6.4",
        " runner",
        "runner\n",
        "runner:",
        "runner:6.4:1",
        "runner:${TAG}",
        "runner:-1",
        "runner:" + "1" * 129,
        "runner@sha256:0a",
        "runner@" + DIGEST.upper(),
        f"@{DIGEST}",
        "0a" * 32,
        "Runner:6.4",
        "ghcr.io/Acme/runner",
        "ghcr.io/acme/-runner",
        "ghcr.io/acme/a___b",
        "ghcr.io//runner",
        "ghcr.io/",
        "r" * 256,
        "registry.example/" + "r" * 256,
        "localhost/" + "r" * 256,
    ],
)
def test_not_an_image_reference(image: str) -> None:
    assert not is_image_reference(image)


def test_a_long_text_is_refused_quickly() -> None:
    # A pattern that tries each way to split a name would not end.
    assert not is_image_reference("a-" * 100_000)
