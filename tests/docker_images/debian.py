"""Makes the file system of the base image: Debian, with what this host's network and the tests' server need.

It stands for the base images of versions.yaml, which no test downloads: `python:*-slim` and `ubuntu`. The
host's settings for pip, uv, proxies and certificates are part of it, as in scripts/fresh.sh. The user's cache
keeps what mmdebstrap makes, for all clones on a host.
"""

import fcntl
import os
import re
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

from lab.kubernetes.programs import cache

ROOT = Path(__file__).parents[2]
UV = ROOT / ".cache" / "uv"
"""Where scripts/bootstrap.sh installs uv."""

PACKAGES = "ca-certificates,curl,python-is-python3,python3,python3-pip"
SOURCES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources")
SETTINGS = (
    "/etc/pip.conf",
    "/etc/uv/uv.toml",
    "/root/.config/pip/pip.conf",
    "/root/.config/uv/uv.toml",
)
CERTIFICATES = Path("/usr/local/share/ca-certificates")
VARIABLES = re.compile(r"(ssl_cert_file|requests_ca_bundle|(pip|uv)_[a-z_]+)", re.IGNORECASE)
REPOSITORY = "deb [trusted=yes] http://packages.example/debian ./\n"
"""The only source of packages in the image: the test's proxy answers for this host."""


def settings() -> list[Path]:
    """Return the host's files that the base image contains."""
    files = [Path(one) for one in SETTINGS] + sorted(CERTIFICATES.glob("*.crt"))
    return [one for one in files if one.is_file()]


def variables() -> dict[str, str]:
    """Return the host's variables that the base image sets."""
    return {name: value for name, value in os.environ.items() if VARIABLES.fullmatch(name)}


def identity() -> str:
    """Return what changes whenever the base image must be made again."""
    known = sha256(Path(__file__).read_bytes())
    for path in (*settings(), ROOT / "scripts" / "bootstrap.sh", Path("/etc/os-release")):
        known.update(path.read_bytes())
    known.update(repr(sorted(variables().items())).encode())
    return known.hexdigest()[:16]


def make_debian(folder: Path, authority: Path) -> None:
    """Make the file system. `authority`: the certificate of the tests' web server.

    Raises CalledProcessError, with the reason on stderr.
    """
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(["cp", "-a", "--reflink=auto", _shared_debian(), folder], check=True)
    _furnish(folder, authority)


def _shared_debian() -> Path:
    """Return Debian as mmdebstrap makes it, which nothing may change. Downloads its packages if it is missing.

    Its name is a digest of the command and of the files with the mirrors.
    """
    command, mirrors = _mmdebstrap()
    known = sha256(repr((command, mirrors)).encode())
    for path in mirrors:
        known.update(Path(path).read_bytes())
    made = cache().parent / "container-roots" / known.hexdigest()[:16]
    new = made.with_suffix(".new")
    made.parent.mkdir(parents=True, exist_ok=True)
    with (made.parent / "lock").open("w") as lock:
        # Another clone may be making it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(new, ignore_errors=True)
            subprocess.run([*command, str(new), *mirrors], check=True)
            new.rename(made)
    return made


def _mmdebstrap() -> tuple[list[str], list[str]]:
    """Return the command without its folder, and the files that name this host's mirrors, if it is Debian."""
    release = "bookworm"
    mirrors: list[str] = []
    found = dict(
        re.findall(r'^(\w+)="?([^"\n]*)"?$', Path("/etc/os-release").read_text(), re.MULTILINE)
    )
    if found.get("ID") == "debian":
        release = found["VERSION_CODENAME"]
        mirrors = [one for one in SOURCES if Path(one).is_file() and Path(one).stat().st_size]
    excluded = (f"--dpkgopt=path-exclude=/usr/share/{one}/*" for one in ("doc", "locale", "man"))
    options = ["--quiet", "--variant=minbase", f"--include={PACKAGES}", *excluded]
    acquire = subprocess.run(
        ["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=True
    )
    lines = acquire.stdout.splitlines()
    options += [
        f"--aptopt={one}" for one in lines if re.match(r"Acquire::(https?|Check-|Retries)", one)
    ]
    return ["mmdebstrap", *options, release], mirrors


def _furnish(folder: Path, authority: Path) -> None:
    for path in settings():
        target = folder / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    shutil.copyfile(authority, folder / CERTIFICATES.relative_to("/") / "tests.crt")
    subprocess.run(
        ["chroot", folder, "update-ca-certificates"], check=True, stdout=subprocess.DEVNULL
    )
    # As in the image `python`, where pip installs into the system's Python.
    for marker in folder.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        marker.unlink()
    [packages] = folder.glob("usr/local/lib/python3*/dist-packages")
    [installed] = UV.glob("lib/python3*/site-packages")
    for one in installed.glob("uv*"):
        shutil.copytree(one, packages / one.name)
    shutil.copy(UV / "bin" / "uv", folder / "usr/local/bin/uv")
    for path in (folder / "etc/apt").rglob("*.sources"):
        path.unlink()
    for path in (folder / "etc/apt/sources.list.d").iterdir():
        path.unlink()
    (folder / "etc/apt/sources.list").write_text(REPOSITORY)
    shutil.rmtree(folder / "var/lib/apt/lists")
    (folder / "var/lib/apt/lists/partial").mkdir(parents=True)
