"""The files that `autoscaler init` writes without GitHub, and the renewal of its certificate."""

import os
import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from autoscaler.setup.certificates import RENEWED_BEFORE, VALID
from autoscaler.setup.local_files import write_missing
from autoscaler.setup.private_files import NotWrittenError, replace, write_new

NOW = datetime.now(UTC).replace(microsecond=0)
NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL: certificates of a later day are used today."""
HOSTS = ["fleet.internal.example", "10.0.0.5"]


def server(folder: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / "server.pem").read_bytes())


def shake_hands(folder: Path, host: str) -> None:
    """Connect as a machine does, with the strict checks of newer Pythons. Raises SSLError."""
    listener = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    listener.load_cert_chain(folder / "server.pem", folder / "server.key")
    caller = ssl.create_default_context(cafile=folder / "ca.pem")
    caller.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VerifyFlags(NO_CHECK_TIME)
    to_caller, to_listener = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        caller.wrap_bio(to_caller, to_listener, server_hostname=host),
        listener.wrap_bio(to_listener, to_caller, server_side=True),
    ]
    for end in (*ends, *ends):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue


@pytest.mark.parametrize("host", HOSTS)
def test_machines_accept_the_certificate(tmp_path: Path, host: str) -> None:
    write_missing(tmp_path, "ci", host, NOW)
    shake_hands(tmp_path, host)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tmp_path, "another.example")


@pytest.mark.parametrize("password", [b"", b"secret"])
def test_a_ca_that_cannot_sign_is_refused(tmp_path: Path, password: bytes) -> None:
    """An RSA key, or a key with a password, which the owner has put there."""
    write_missing(tmp_path, "ci", HOSTS[0], NOW)
    for name in ("server.pem", "server.key"):
        (tmp_path / name).unlink()
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey = (
        ec.generate_private_key(ec.SECP256R1())
        if password
        else rsa.generate_private_key(65537, 2048)
    )
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    (tmp_path / "ca.key").write_bytes(text)
    with pytest.raises(NotWrittenError, match=r"ca\.key cannot sign"):
        write_missing(tmp_path, "ci", HOSTS[0], NOW)
    assert not (tmp_path / "server.key").exists()
    assert (tmp_path / "ca.key").read_bytes() == text


def test_a_certificate_is_renewed_before_its_end_and_for_another_host(tmp_path: Path) -> None:
    write_missing(tmp_path, "ci", HOSTS[0], NOW)
    first, authority = server(tmp_path), (tmp_path / "ca.pem").read_bytes()
    assert write_missing(tmp_path, "ci", HOSTS[0], NOW + VALID - RENEWED_BEFORE) == []
    later = NOW + VALID - RENEWED_BEFORE + timedelta(hours=1)
    (line,) = write_missing(tmp_path, "ci", HOSTS[0], later)
    assert "init renews it" in line
    assert server(tmp_path).not_valid_after_utc > first.not_valid_after_utc
    shake_hands(tmp_path, HOSTS[0])
    write_missing(tmp_path, "ci", HOSTS[1], later)
    shake_hands(tmp_path, HOSTS[1])
    assert (tmp_path / "ca.pem").read_bytes() == authority


def test_certificates_of_another_authority_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "server.pem").write_text("of my company")
    write_missing(tmp_path, "ci", HOSTS[0], NOW)
    assert (tmp_path / "server.pem").read_text() == "of my company"
    assert not (tmp_path / "ca.pem").exists()


def test_private_files_are_for_their_owner_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_new(tmp_path / "a", b"secret")
        replace(tmp_path / "a", b"other")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["a"]


def test_no_file_and_no_link_is_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "target"
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(NotWrittenError, match="it is not overwritten"):
        write_new(tmp_path / "link", b"secret")
    assert not target.exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotWrittenError, match="cannot be written: No such file or directory"):
        write_new(tmp_path / "missing" / "a", b"")
