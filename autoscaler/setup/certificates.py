"""Makes the certificate with which machines recognise the controller, and the CA that signs it.

Machines get the CA's certificate from the controller (`server.tls.ca_file`), so that nothing else trusts it.
"""

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = timedelta(days=365)
"""How long the server's certificate is valid. `autoscaler check` warns 14 days before its end."""

RENEWED_BEFORE = timedelta(days=60)
"""`autoscaler init` renews it if it ends sooner than this."""

AUTHORITY_VALID = timedelta(days=3650)

_SINCE = timedelta(hours=1)
"""The clock of a machine may be behind."""

Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM. The key is a secret."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        """Return a representation without the key."""
        return "Pair()"


def make_authority(fleet: str, now: datetime) -> Pair:
    """Return a new CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"autoscaler {fleet} CA")])
    usage = _usage(signs_certificates=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _builder(name, name, key, now, AUTHORITY_VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), False
        )
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def make_server(authority: Pair, host: str, now: datetime) -> Pair:
    """Return a new certificate for a host name or an address. Raises ValueError if the CA cannot be used."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer = serialization.load_pem_private_key(authority.key, password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ValueError("the CA's key is of another kind")  # noqa: TRY004
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "autoscaler")])
    certificate = (
        _builder(name, issuer.subject, key, now, VALID)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(host)]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False
        )
        .sign(signer, hashes.SHA256())
    )
    return _pair(certificate, key)


def is_due(certificate: bytes, host: str, now: datetime) -> bool:
    """Return whether a server's certificate is about to end, is for another host, or is unreadable."""
    try:
        found = x509.load_pem_x509_certificate(certificate)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return True
    return _alternative(host) not in names or found.not_valid_after_utc - now < RENEWED_BEFORE


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Key, now: datetime, valid: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SINCE)
        .not_valid_after(now + valid)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: Key) -> Pair:
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(certificate.public_bytes(encoding), private)
