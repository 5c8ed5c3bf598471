"""The workshop in which images are built, or why this host cannot build any."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker_images.workshop import Workshop, open_workshop

PROGRAMS = ("buildah", "mmdebstrap")


@pytest.fixture(scope="session")
def workshop() -> Iterator[Workshop]:
    assert os.geteuid() == 0, (
        "images are built as root only; run: sudo make test-systems PARTS=images"
    )
    mounts = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    assert mounts.returncode == 0, "this container may not mount file systems, which buildah needs"
    missing = [one for one in PROGRAMS if shutil.which(one) is None]
    assert not missing, f"missing: {', '.join(missing)}; run: apt-get install {' '.join(PROGRAMS)}"
    with open_workshop() as opened:
        yield opened


@pytest.fixture(scope="module")
def made(workshop: Workshop, image: str) -> Iterator[tuple[str, Path]]:
    """A container of the module's `image`: its name, and the folder with its files."""
    with workshop.container(image) as container:
        yield container
