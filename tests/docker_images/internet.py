"""What a runner's build downloads, served on loopback: the runner's archive and a repository of packages.

The archive is served with TLS on localhost. The packages come through an HTTP proxy, which answers for the
repository of the base image. Each package is a real one without files, made by dpkg-deb.
`installdependencies.sh` and `env.sh` are those of actions/runner; its other programs are stand-ins.
"""

import gzip
import io
import ssl
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

DATA = Path(__file__).parent / "data"
PACKAGES = ("git", "jq", "libicu74", "liblttng-ust1t64", "unzip", "xz-utils", "zstd")
"""The packages that the build installs and the base image lacks, named as in Ubuntu 24.04."""

LISTENER = """#!/bin/sh
[ "$1" = --version ] && echo {version}
"""


def runner_archive(version: str) -> bytes:
    """Return an archive with the files of a runner that the image and the agent use."""
    files = {
        "bin/Runner.Listener": LISTENER.format(version=version),
        "bin/installdependencies.sh": (DATA / "installdependencies.sh").read_text(),
        "env.sh": (DATA / "env.sh").read_text(),
        "run.sh": "#!/bin/bash\nexit 0\n",
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"./{name}")
            entry.size, entry.mode = len(text.encode()), 0o755
            # The user of GitHub's build, whom the image does not have.
            entry.uid = entry.gid = 1018
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


def package_repository(folder: Path) -> dict[str, bytes]:
    """Return the files of a flat repository (`man sources.list`), by their path at the host."""
    files: dict[str, bytes] = {}
    index = []
    for name in PACKAGES:
        control = (
            f"Package: {name}\nVersion: 1.0-1\nArchitecture: all\n"
            "Maintainer: Tests <tests@example.com>\nDescription: nothing\n"
        )
        source = folder / name / "DEBIAN"
        source.mkdir(parents=True)
        (source / "control").write_text(control)
        built = folder / f"{name}.deb"
        command = ["dpkg-deb", "--build", "--root-owner-group", str(source.parent), str(built)]
        subprocess.run(command, check=True, capture_output=True)
        content = built.read_bytes()
        files[f"/debian/./{name}.deb"] = content
        where = (
            f"Filename: ./{name}.deb\nSize: {len(content)}\nSHA256: {sha256(content).hexdigest()}\n"
        )
        index.append(control + where)
    packages = "\n".join(index).encode()
    lines = [
        f" {sha256(one).hexdigest()} {len(one)} {name}"
        for name, one in {
            "Packages": packages,
            "Packages.gz": gzip.compress(packages, mtime=0),
        }.items()
    ]
    release = (
        "Suite: stable\nDate: Mon, 23 Nov 2026 00:00:00 UTC\nSHA256:\n" + "\n".join(lines) + "\n"
    )
    files["/debian/./Release"] = release.encode()
    files["/debian/./Packages"] = packages
    files["/debian/./Packages.gz"] = gzip.compress(packages, mtime=0)
    return files


@contextmanager
def served(files: Mapping[str, bytes], tls: tuple[Path, Path] | None = None) -> Iterator[int]:
    """Serve files by path, also to requests for a proxy, and yield the port on localhost.

    `tls`: a certificate and its key.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = files.get(urlsplit(self.path).path)
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
