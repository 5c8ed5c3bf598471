"""Brings the files of npm packages that tests compare with: GitHub's own descriptions of itself.

    python scripts/npm_packages.py

Fetches what is missing from NPM_CONFIG_REGISTRY (or npm's own registry), checks it against the
SHA-512 pinned here and keeps only the files named here, below .cache/npm. Neither npm nor Node is
needed. It runs nothing out of a package, and the program itself needs none of them.
"""

import base64
import hashlib
import http.client
import os
import ssl
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

COMMAND = "python scripts/npm_packages.py"
CACHE = Path(__file__).parents[1] / ".cache" / "npm"
REGISTRY = "https://registry.npmjs.org"
TIMEOUT = 5.0
"""Seconds without a byte: every `make` tries again what is still missing."""
_CHUNK = 1 << 20


class MismatchError(Exception):
    """What came is not what is pinned here."""


@dataclass(frozen=True)
class Package:
    """One package: `sha512` as a package-lock.json has it, `files` as paths inside the package."""

    name: str
    version: str
    sha512: str
    files: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Where its files lie, named after what is in them."""
        content = f"{self.sha512} {' '.join(self.files)}".encode()
        digest = hashlib.sha256(content).hexdigest()[:12]
        return CACHE / f"{self.name.rpartition('/')[2]}-{self.version}-{digest}"

    @property
    def present(self) -> bool:
        """Whether it need not be fetched."""
        return self.folder.is_dir()

    def url(self, registry: str) -> str:
        """The tarball, where every npm registry keeps it."""
        short = self.name.rpartition("/")[2]
        return f"{registry.rstrip('/')}/{self.name}/-/{short}-{self.version}.tgz"


OPENAPI = Package(
    "@octokit/openapi",
    "23.0.2",
    "pV8M7L9GY23AybNvTmo2nyjmpmnt6+2sRE/tqr0ZLQcPS4lnw7u5eZGNmwRNkBC3D7gZXbFx5AHzLUVRBXGDhg==",
    ("generated/api.github.com.json",),
)
EXAMPLES = Package(
    "@octokit/webhooks-examples",
    "7.6.1",
    "De6U3XB6O3DtCa7bKgCMzTHdeopqqZ6SNivMYJnK65ierKL1AnNIA0tkRYCRS7lwGT792d+Ps1WbfHlso6MynQ==",
    ("api.github.com/index.json",),
)
SCHEMAS = Package(
    "@octokit/webhooks-schemas",
    "7.6.1",
    "qW0Bwtb76r4m2WzVhKDyfEeEnt1GEQoRjkCqmq2ZeB0nNVDJ+Z2LBDS9FDPyduuMXf/ZTWiCJp9PFFHgRfBe3A==",
    ("schema.json",),
)
PACKAGES = (OPENAPI, EXAMPLES, SCHEMAS)


def find(package: Package, name: str) -> Path:
    """One of its files. Raises FileNotFoundError, which says what brings it."""
    path = package.folder / name
    if not path.is_file():
        raise FileNotFoundError(f"{package.name} {package.version} is not here; run: {COMMAND}")
    return path


def registry_of(environment: Mapping[str, str]) -> str:
    """The registry that npm itself would use, by the environment alone."""
    for name in ("NPM_CONFIG_REGISTRY", "npm_config_registry"):
        if environment.get(name):
            return environment[name]
    return REGISTRY


def bring(package: Package, registry: str, note: Callable[[str], None]) -> None:
    """Fetch a package, check it, keep its files: all of them or nothing, never half.

    Raises MismatchError, OSError where the registry cannot be reached or the disk is full,
    http.client.HTTPException on an answer that is none, and ValueError for a registry that is no URL.
    """
    package.folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=package.folder.parent, prefix=".part-") as scratch:
        tarball = Path(scratch) / "package.tgz"
        _download(package.url(registry), tarball, package)
        unpacked = Path(scratch) / "files"
        _unpack(tarball, unpacked, package)
        # Another process may have fetched the package meanwhile: its files are the same.
        with suppress(OSError):
            unpacked.rename(package.folder)
    if not package.present:
        raise OSError(f"{package.folder} could not be written")
    note(f"Brought {package.name} {package.version}")


def _download(url: str, target: Path, package: Package) -> None:
    digest = hashlib.sha512()
    with (
        urllib.request.urlopen(url, timeout=TIMEOUT, context=_trust()) as answer,  # noqa: S310
        target.open("wb") as file,
    ):
        while chunk := answer.read(_CHUNK):
            digest.update(chunk)
            file.write(chunk)
    if base64.b64encode(digest.digest()).decode() != package.sha512:
        raise MismatchError(f"{url} is not the {package.name} that is pinned")


def _unpack(tarball: Path, target: Path, package: Package) -> None:
    """Members are read by name and written by our own; nothing else of the archive is used."""
    wanted = set(package.files)
    with tarfile.open(tarball, mode="r|gz") as archive:
        for member in archive:
            name = member.name.partition("/")[2]
            source = archive.extractfile(member) if name in wanted else None
            if source is None:
                continue
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                while chunk := source.read(_CHUNK):
                    file.write(chunk)
            wanted.discard(name)
            if not wanted:
                return
    raise MismatchError(f"{package.name} {package.version} has no {', '.join(sorted(wanted))}")


def _trust() -> ssl.SSLContext:
    """The system's certificates and, where it has none, those that came with .venv."""
    context = ssl.create_default_context()
    with suppress(ImportError):
        import certifi

        context.load_verify_locations(certifi.where())
    return context


def main() -> int:
    """Bring what is missing; 1, and one line, if something could not be brought."""
    registry = registry_of(os.environ)
    try:
        for package in PACKAGES:
            if not package.present:
                bring(package, registry, lambda line: print(f"==> {line}", flush=True))  # noqa: T201
    except (MismatchError, OSError, http.client.HTTPException, ValueError) as error:
        without = "the tests that compare with it fail, and nothing else needs it"
        print(f"==> Without {package.name} ({error}): {without}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
