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


@cache
def certificate(
    key: PrivateKey,
    *hosts: str,
    start: datetime.datetime = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    days: float = 36_500,
) -> str:
    """A certificate of a key for these hosts, signed by itself, as text."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fleet.example")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=days))
    )
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    made = builder.sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
