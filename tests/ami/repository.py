"""Signed package repositories with real .deb files, which a test serves over HTTPS."""

import gzip
import hashlib
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Deb:
    """A package. `files` has its files by path; those in a bin folder are programs.

    `installed` is the shell script that dpkg runs after it has unpacked them.
    """

    name: str
    files: Mapping[str, str] = field(default_factory=dict)
    version: str = "99.0"
    installed: str = ""


def sha256(file: Path) -> str:
    """Return a file's checksum."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def make_deb(folder: Path, deb: Deb) -> Path:
    """Build a real .deb file with dpkg-deb."""
    tree = folder / f"{deb.name}.tree"
    control = (
        f"Package: {deb.name}\nVersion: {deb.version}\nArchitecture: all\n"
        "Maintainer: test <test@example>\nDescription: stand-in\n"
    )
    files = {"DEBIAN/control": control, **deb.files}
    if deb.installed:
        files["DEBIAN/postinst"] = f"#!/bin/sh\nset -e\n{deb.installed}\n"
    for path, text in files.items():
        file = tree / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755 if "bin/" in path or path.endswith("postinst") else 0o644)
    # A file's name leaves out the epoch.
    made = folder / f"{deb.name}_{deb.version.rpartition(':')[2]}_all.deb"
    command = ["dpkg-deb", "--build", "-Znone", "--root-owner-group", str(tree), str(made)]
    subprocess.run(command, check=True, capture_output=True)
    return made


class Signer:
    """A key for repositories, in a folder. `public` is what a publisher serves: the armored key."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self._home = folder
        new = ["--quick-generate-key", "test <test@example>", "ed25519", "sign", "never"]
        self._gpg("--passphrase", "", *new)
        self.public = self._gpg("--armor", "--export")

    def clear_sign(self, text: str) -> bytes:
        """Return the text with its signature, as in a repository's InRelease."""
        return self._gpg("--clear-sign", text=text)

    def close(self) -> None:
        """End the agent that gpg has started."""
        environment = os.environ | {"GNUPGHOME": str(self._home)}
        subprocess.run(["gpgconf", "--kill", "gpg-agent"], check=True, env=environment)

    def _gpg(self, *words: str, text: str = "") -> bytes:
        command = ["gpg", "--homedir", str(self._home), "--batch", "--quiet", *words]
        done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout


def make_repository(
    root: Path, debs: Sequence[Deb], signer: Signer, suite: str = "", origin: str = "test"
) -> None:
    """Build packages, and their list with its signature: flat, or for the component main of a suite."""
    lists = root / (f"dists/{suite}/main/binary-amd64" if suite else "")
    release = root / (f"dists/{suite}" if suite else "")
    lists.mkdir(parents=True, exist_ok=True)
    paragraphs = []
    for deb in debs:
        made = make_deb(root, deb)
        data = made.read_bytes()
        paragraphs.append(
            f"Package: {deb.name}\nVersion: {deb.version}\nArchitecture: all\n"
            f"Maintainer: test <test@example>\nFilename: ./{made.name}\nSize: {len(data)}\n"
            f"SHA256: {hashlib.sha256(data).hexdigest()}\nDescription: stand-in\n"
        )
    # APT looks for the checksum of the list itself, too.
    listed = "\n".join(paragraphs).encode()
    sums = ""
    for name, data in (("Packages", listed), ("Packages.gz", gzip.compress(listed))):
        (lists / name).write_bytes(data)
        path = (lists / name).relative_to(release)
        sums += f" {hashlib.sha256(data).hexdigest()} {len(data)} {path}\n"
    codename = f"Suite: {suite}\nCodename: {suite}\nComponents: main\n" if suite else ""
    text = (
        f"Origin: {origin}\n{codename}Architectures: amd64\nDate: Tue, 24 Nov 2026 00:00:00 UTC\n"
        f"SHA256:\n{sums}"
    )
    (release / "InRelease").write_bytes(signer.clear_sign(text))


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print no traceback if a machine is terminated in the middle of a download."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def served(folder: Path, certificate: Path, key: Path) -> Iterator[str]:
    """Serve a folder on loopback over HTTPS, and yield its URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = _Server(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
