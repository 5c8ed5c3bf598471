"""Publishes the lab's runner over HTTPS, as GitHub publishes actions/runner: an archive with a checksum."""

import hashlib
import io
import ssl
import tarfile
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lab.machine_host import RUNNER_VERSION

_FILE = "actions-runner-linux-x64.tar.gz"
_SCRIPTS = (("run.sh", "run.sh"), ("bin/Runner.Listener", "Runner.Listener"))
_WORKER = ("bin/Runner.Worker", "Runner.Worker")


class RunnerPublisher:
    """Serves the archive on loopback. `folder` gets its certificate, which machines must trust."""

    def __init__(self, folder: Path) -> None:
        self.certificate = folder / "publisher.pem"
        self.downloads = 0
        self._key = folder / "publisher.key"
        self._archive = runner_archive()
        self._runner: web.AppRunner | None = None
        self._url = ""

    async def start(self) -> None:
        """Create the certificate and listen."""
        key = ec.generate_private_key(ec.SECP256R1())
        self.certificate.write_bytes(_certificate(key).public_bytes(serialization.Encoding.PEM))
        self._key.touch(mode=0o600)
        plain = serialization.NoEncryption()
        form = serialization.PrivateFormat.PKCS8
        self._key.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self._key)
        application = web.Application()
        application.router.add_get(f"/{_FILE}", self._answer)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context).start()
        self._url = f"https://127.0.0.1:{self._runner.addresses[0][1]}/{_FILE}"

    async def close(self) -> None:
        """Stop listening. Idempotent."""
        if self._runner is not None:
            await self._runner.cleanup()

    def versions(self) -> dict[str, Any]:
        """Return the content of a versions.yaml with this runner."""
        file = {"url": self._url, "sha256": hashlib.sha256(self._archive).hexdigest()}
        day = "2026-10-06"
        source = "https://github.com/actions/runner/releases"
        runner: dict[str, Any] = {"version": RUNNER_VERSION, "source": source}
        runner |= {"released": day, "newest_on": day, "read_on": day}
        return {"runner": {**runner, "files": {"linux-x64": file, "linux-arm64": file}}}

    async def _answer(self, _request: web.Request) -> web.Response:
        self.downloads += 1
        return web.Response(body=self._archive, content_type="application/gzip")


def runner_archive() -> bytes:
    """Return an archive with the lab's runner. Like GitHub's, it has its files in no folder of its own."""
    programs = files(__package__) / "programs"
    members = [(name, (programs / program).read_bytes()) for name, program in (*_SCRIPTS, _WORKER)]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in (*members, ("bin/version", f"{RUNNER_VERSION}\n".encode())):
            member = tarfile.TarInfo(f"./{name}")
            member.size, member.mode = len(content), 0o755
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def _certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Lab runner publisher")])
    now = datetime.now(UTC)
    address = x509.IPAddress(ip_address("127.0.0.1"))
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1))
    builder = builder.not_valid_after(now + timedelta(days=365))
    builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return builder.sign(key, hashes.SHA256())
