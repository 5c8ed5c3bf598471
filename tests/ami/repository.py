"""A package repository with real .deb files, and a stand-in for actions/runner, which a test serves."""

import gzip
import hashlib
import subprocess
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import lab.machines

SAYS = "#!/bin/sh\necho '{}'\n"
UNIT = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"

DEBS: Mapping[str, Mapping[str, str]] = {
    "acl": {},
    "chrony": {"lib/systemd/system/chrony.service": UNIT},
    "docker-buildx": {},
    "docker.io": {
        "usr/bin/docker": SAYS.format("Docker version 27.5.1, build 1"),
        "usr/bin/dockerd": SAYS.format("dockerd"),
        "usr/bin/containerd": SAYS.format("containerd"),
        "lib/systemd/system/docker.service": UNIT,
        "lib/systemd/system/containerd.service": UNIT,
    },
    "git": {"usr/bin/git": SAYS.format("git")},
    "jq": {"usr/bin/jq": SAYS.format("jq")},
    "libicu-of-the-test": {"usr/lib/libicu-of-the-test": "library\n"},
    "mdadm": {"sbin/mdadm": SAYS.format("mdadm")},
    "unzip": {},
    "xz-utils": {},
    "zip": {},
    "zstd": {},
}
"""The files of each package of the repository, by path. Those in a bin folder are programs."""

PROGRAMS = Path(lab.machines.__file__).parent / "programs"

LISTENER = """\
#!/bin/bash
cd "$(dirname "$0")/.." || exit
test -e /usr/lib/libicu-of-the-test || { echo 'no libicu'; exit 134; }
if [[ "$1" == warmup ]]; then mkdir -p _diag && date > _diag/Runner_1.log && id -un > warmed-by; exit; fi
"""
"""What the listener of the real archive does besides taking jobs."""

RUNNER = {
    "run.sh": (PROGRAMS / "run.sh").read_text(),
    "bin/installdependencies.sh": (
        '#!/bin/bash\nset -e\n[ "$(id -u)" = 0 ]\napt-get install -y -q libicu-of-the-test\n'
    ),
    "bin/Runner.Listener": LISTENER + (PROGRAMS / "Runner.Listener").read_text(),
    "bin/Runner.Worker": (PROGRAMS / "Runner.Worker").read_text(),
    "bin/version": "{version}\n",
}
"""The files of the stand-in for actions/runner, by their real names. It takes jobs of the lab's GitHub."""


def make_deb(folder: Path, name: str, files: Mapping[str, str], version: str = "99.0") -> Path:
    """Build a real .deb file with dpkg-deb."""
    tree = folder / f"{name}.tree"
    control = (
        f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: test <test@example>\n"
        "Description: stand-in\n"
    )
    for path, text in {"DEBIAN/control": control, **files}.items():
        file = tree / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755 if "bin/" in path else 0o644)
    deb = folder / f"{name}_{version}_all.deb"
    command = ["dpkg-deb", "--build", "-Znone", "--root-owner-group", str(tree), str(deb)]
    subprocess.run(command, check=True, capture_output=True)
    return deb


def make_repository(folder: Path) -> None:
    """Build all packages and their list."""
    paragraphs = []
    for name, files in DEBS.items():
        deb = make_deb(folder, name, files)
        data = deb.read_bytes()
        paragraphs.append(
            f"Package: {name}\nVersion: 99.0\nArchitecture: all\nMaintainer: test <test@example>\n"
            f"Filename: ./{deb.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
            "Description: stand-in\n"
        )
    (folder / "Packages.gz").write_bytes(gzip.compress("\n".join(paragraphs).encode()))


def make_runner(folder: Path, version: str) -> str:
    """Write runner.tar.gz; return its SHA-256."""
    tree = folder / "runner.tree"
    for path, text in RUNNER.items():
        file = tree / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("{version}", version))
        file.chmod(0o755)
    archive = folder / "runner.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tree, ".")
    return hashlib.sha256(archive.read_bytes()).hexdigest()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on loopback, and yield its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
