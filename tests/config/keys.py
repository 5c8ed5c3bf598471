"""Keys and certificates as PEM text, made once for a run of the tests."""

import datetime
import ipaddress
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@cache
def rsa_key(which: str = "one") -> rsa.RSAPrivateKey:
    """The RSA key of this name."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def curve_key(which: str = "one") -> ec.EllipticCurvePrivateKey:
    """The key of this name, which is not RSA."""
    return ec.generate_private_key(ec.SECP256R1())


@cache
def with_another_exponent() -> rsa.RSAPrivateKey:
    """An RSA key whose private exponent is not that of its primes."""
    good = rsa_key().private_numbers()
    numbers = rsa.RSAPrivateNumbers(
        good.p, good.q, good.d + 2, good.dmp1, good.dmq1, good.iqmp, good.public_numbers
    )
    return numbers.private_key(unsafe_skip_rsa_key_validation=True)


def pem(key: PrivateKey, password: bytes | None = None) -> str:
    """A private key as text."""
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password)
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, encryption).decode()


AUTHORITY, INTERMEDIATE = "A certificate authority", "An intermediate authority"
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@cache
def certificate(
    key: PrivateKey,
    *hosts: str,
    start: datetime.datetime = START,
    days: float = 36_500,
    signed_by: PrivateKey | None = None,
    issuer: str = AUTHORITY,
) -> str:
    """A certificate of a key for these hosts, signed by itself or by the CA with a key, as text."""
    name = "fleet.example"
    builder = _builder(key, name, issuer if signed_by else name, start, days)
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return _signed(builder, signed_by or key)


@cache
def authority(
    key: PrivateKey,
    *,
    start: datetime.datetime = START,
    days: float = 36_500,
    signed_by: PrivateKey | None = None,
) -> str:
    """The certificate of the CA with this key, as text; of an intermediate one, signed by another CA."""
    name = INTERMEDIATE if signed_by else AUTHORITY
    constraints = x509.BasicConstraints(ca=True, path_length=None)
    builder = _builder(key, name, AUTHORITY, start, days).add_extension(constraints, critical=True)
    return _signed(builder, signed_by or key)


def _builder(
    key: PrivateKey, subject: str, issuer: str, start: datetime.datetime, days: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _signed(builder: x509.CertificateBuilder, key: PrivateKey) -> str:
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    made = builder.add_extension(issuer, critical=False).sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
