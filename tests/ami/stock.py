"""The stock image: a Debian that knows the package repository and trusts the test's HTTPS server."""

import subprocess
from pathlib import Path

from tests.ami.gpus import MODPROBE
from tests.ami.repository import Signer
from tests.ami.root import base_root

TRUSTED = "etc/ssl/certs/ca-certificates.crt"


def stock_image(folder: Path, url: str, signer: Signer, certificate: Path) -> list[Path]:
    """Return the folders of which the stock image consists, the newest first."""
    root = base_root()
    words = ["openssl", "x509", "-subject_hash", "-noout", "-in", str(certificate)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    keyring = "usr/share/keyrings/distribution.asc"
    files = {
        keyring: signer.public,
        "etc/apt/sources.list": f"deb [signed-by=/{keyring}] {url}/ubuntu ./\n".encode(),
        # The recipes are for Ubuntu, and AMD has packages for Ubuntu only.
        "usr/lib/os-release": b'ID=ubuntu\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n',
        # APT and curl read the first file, Python the second one.
        TRUSTED: (root / TRUSTED).read_bytes() + certificate.read_bytes(),
        f"etc/ssl/certs/{done.stdout.strip()}.0": certificate.read_bytes(),
        "usr/sbin/modprobe": MODPROBE.encode(),
    }
    for path, content in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(0o755 if "bin/" in path else 0o644)
    return [folder, root]
