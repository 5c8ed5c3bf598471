"""buildah with a storage of its own in the cache of this clone, and a base image that is made once."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscaler.images.load import load_versions
from tests.docker_images.debian import ROOT, identity, make_debian, variables

AUTOSCALER = Path(sys.executable).parent / "autoscaler"
CACHE = ROOT / ".cache" / "docker_images"
STORAGE = """[storage]
driver = "{driver}"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
"""


@dataclass(frozen=True)
class Workshop:
    """Builds and runs images. `base` is the base image, and `digest` that of its manifest."""

    folder: Path
    base: str
    digest: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """The isolation chroot needs no container runtime."""
        own = {
            "BUILDAH_ISOLATION": "chroot",
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
            "TMPDIR": str(self.folder / "tmp"),
        }
        return {**os.environ, **own}

    def buildah(self, *words: str | Path) -> str:
        """Run buildah, and return what it prints."""
        command = ["buildah", *map(str, words)]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def build(self, name: str, versions: Path, *further: str) -> subprocess.CompletedProcess[str]:
        """Run `autoscaler images build` with a versions.yaml, and return its status and output."""
        options = [
            "--engine",
            "buildah",
            "--root",
            str(ROOT),
            "--file",
            str(versions),
            "--tag",
            f"{name}:tests",
        ]
        return subprocess.run(
            [str(AUTOSCALER), "images", "build", name, *options, "--", "--pull-never", *further],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def with_variable(self, name: str, value: str) -> "Workshop":
        """Return a workshop whose base image also has this variable."""
        base = f"localhost/debian-{name.lower()}:tests"
        container = self.buildah("from", "--pull-never", self.base)
        self.buildah("config", "--env", f"{name}={value}", container)
        self.buildah("commit", "--quiet", "--disable-compression", "--rm", container, base)
        return Workshop(self.folder, base, self.buildah("images", "--format", "{{.Digest}}", base))

    def versions(self, folder: Path, key: str, *changes: tuple[str, str]) -> Path:
        """Write this project's versions.yaml with the base image of the tests, and further changes."""
        base = load_versions().versions.container_images[key]
        assert base.digest is not None
        text = (ROOT / "autoscaler" / "images" / "versions.yaml").read_text()
        own = ((base.reference, self.base), (base.digest, self.digest))
        for old, new in (*own, *changes):
            assert old in text, old
            text = text.replace(old, new)
        file = folder / "versions.yaml"
        file.write_text(text)
        return file

    def settings(self, image: str) -> dict[str, Any]:
        """Return the image's configuration: user, environment, labels, command."""
        found = json.loads(self.buildah("inspect", "--type", "image", image))
        settings: dict[str, Any] = found["OCIv1"]["config"]
        return settings

    @contextmanager
    def container(self, image: str) -> Iterator[tuple[str, Path]]:
        """Make a container, and return its name and the folder with its files."""
        name = self.buildah("from", "--pull-never", image)
        try:
            yield name, Path(self.buildah("mount", name))
        finally:
            self.buildah("rm", name)


@contextmanager
def open_workshop(folder: Path = CACHE) -> Iterator[Workshop]:
    """Lock the storage, make the base image if it is missing, and remove everything else at the end."""
    for name in ("storage", "run", "tmp"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    workshop = Workshop(folder, f"localhost/debian:{identity()}")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "storage.conf").write_text(STORAGE.format(folder=folder, driver=_driver(folder)))
        _clear(workshop)
        if not workshop.buildah("images", "--quiet", "--filter", f"reference={workshop.base}"):
            _make_base(workshop)
        digest = workshop.buildah("images", "--format", "{{.Digest}}", workshop.base)
        try:
            yield Workshop(folder, workshop.base, digest)
        finally:
            _clear(workshop)


def _driver(folder: Path) -> str:
    """Return overlay where the kernel mounts it, which takes half of the time, and vfs elsewhere.

    In a container, the folder is often on an overlay itself, which cannot be the upper layer of another one.
    """
    for name in ("lower", "upper", "work", "merged"):
        (folder / "probe" / name).mkdir(parents=True, exist_ok=True)
    layers = ",".join(f"{one}dir={folder}/probe/{one}" for one in ("lower", "upper", "work"))
    mount = ["unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", layers]
    mounted = subprocess.run([*mount, folder / "probe/merged"], capture_output=True, check=False)
    return "overlay" if mounted.returncode == 0 else "vfs"


def _clear(workshop: Workshop) -> None:
    """Remove all containers, and all images except the base."""
    workshop.buildah("rm", "--all")
    keep = workshop.buildah(
        "images", "--quiet", "--no-trunc", "--filter", f"reference={workshop.base}"
    )
    every = workshop.buildah("images", "--quiet", "--no-trunc", "--all")
    if unused := set(every.split()) - set(keep.split()):
        workshop.buildah("rmi", "--force", *sorted(unused))


def _make_base(workshop: Workshop) -> None:
    folder = workshop.folder / "debian"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        make_debian(folder, certificate(workshop.folder)[0])
        name = workshop.buildah("from", "scratch")
        workshop.buildah("add", "--quiet", name, folder, "/")
        for one, value in variables().items():
            workshop.buildah("config", "--env", f"{one}={value}", name)
        workshop.buildah("commit", "--quiet", "--disable-compression", "--rm", name, workshop.base)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def certificate(folder: Path) -> tuple[Path, Path]:
    """Return the certificate and the key of the tests' web server on localhost, made once."""
    made, key = folder / "localhost.crt", folder / "localhost.key"
    if not (made.exists() and key.exists()):
        kind = [
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "3650",
        ]
        names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        files = ["-keyout", str(key), "-out", str(made)]
        command = ["openssl", "req", "-x509", *kind, *names, *files]
        subprocess.run(command, check=True, capture_output=True)
    return made, key
