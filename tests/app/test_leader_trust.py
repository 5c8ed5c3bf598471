"""What a replica checks the leader's certificate with: the CAs of `ca_file`, and its own certificate."""

import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from autoscaler.app.following import leader_trust
from autoscaler.config import load
from autoscaler.providers.registry import provider_kinds
from autoscaler.server.listening.settings import TlsFiles
from tests.config.fleet_file import MINIMAL, NAMED_FILES, Folder
from tests.server.certificates import make_certificate

HOST = "fleet.internal.example"
TLS = "tls: {certificate_file: server.pem, key_file: server.key}"
WITH_CA = TLS.replace("}", ", ca_file: ca.pem}")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def trust(folder: Folder, tls: str) -> ssl.SSLContext:
    """Return the trust of a replica with these files."""
    file = folder.path / "fleet.yaml"
    file.write_text(
        MINIMAL.replace("server:\n", f"server:\n  {tls}\n").replace("http://", "https://")
    )
    found = leader_trust(load(file, provider_kinds()))
    assert found is not None
    return found


def shake_hands(trust: ssl.SSLContext, files: TlsFiles, host: str = HOST) -> None:
    """Connect to a server with this certificate, in memory. Raises ssl.SSLCertVerificationError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(there, back, server_side=True)
    client = trust.wrap_bio(back, there, server_hostname=host)
    for _ in range(2):
        for side in (client, server):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    assert client.version() is not None


def own(folder: Folder) -> TlsFiles:
    return TlsFiles(folder.path / "server.pem", folder.path / "server.key")


def test_a_certificate_that_all_replicas_have_needs_no_ca(folder: Folder) -> None:
    make_certificate(folder.path, host=HOST)
    shake_hands(trust(folder, TLS), own(folder))


def test_a_certificate_that_a_ca_signed_needs_no_ca_either(folder: Folder) -> None:
    shake_hands(trust(folder, TLS), own(folder))


def test_one_file_may_have_the_certificate_and_its_key(folder: Folder) -> None:
    """As the hosts of Terraform get both from one secret."""
    files = make_certificate(folder.path, host=HOST)
    both = files.certificate.read_bytes() + files.key.read_bytes()
    for file in (files.certificate, files.key):
        file.write_bytes(both)
    shake_hands(trust(folder, TLS), own(folder))


def test_a_certificate_of_the_ca_is_trusted_beside_the_own_one(
    folder: Folder, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    for name in ("server.pem", "server.key"):
        (other / name).write_text(NAMED_FILES[name])
    make_certificate(folder.path, host=HOST)
    found = trust(folder, WITH_CA)
    shake_hands(found, TlsFiles(other / "server.pem", other / "server.key"))
    shake_hands(found, own(folder))


def test_a_self_signed_certificate_that_another_replica_alone_has_is_refused(
    folder: Folder, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = make_certificate(tmp_path_factory.mktemp("other"), host=HOST)
    make_certificate(folder.path, host=HOST)
    with pytest.raises(ssl.SSLCertVerificationError, match="self-signed"):
        shake_hands(trust(folder, TLS), other)


def test_the_own_certificate_is_refused_for_another_host(folder: Folder) -> None:
    make_certificate(folder.path, host=HOST)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(trust(folder, TLS), own(folder), "other.example")
