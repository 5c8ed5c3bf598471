"""Makes the cluster's certificate authority, its server certificate, tokens and kubeconfig files."""

import ipaddress
import json
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

USERS = {
    "admin": ("admin", "system:masters"),
    "kwok": ("kwok", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
}
"""User name and group of each token's owner. RBAC's built-in bindings know these names."""


class Credentials:
    """The files of one cluster's credentials, in one folder. All are new in each cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tokens = {name: secrets.token_hex(16) for name in USERS}
        self.ca = folder / "ca.pem"
        self.certificate = folder / "server.pem"
        self.key = folder / "server.key"
        self.service_account_key = folder / "service-accounts.key"
        self.token_file = folder / "tokens.csv"
        self._write()

    def kubeconfig(self, name: str, url: str, token: str, namespace: str = "default") -> Path:
        """Write a kubeconfig with one context, which has this name, and return its path.

        JSON is YAML too, so the Go programs and the Python client read it.
        """
        cluster = {"server": url, "certificate-authority": str(self.ca)}
        context = {"cluster": name, "user": name, "namespace": namespace}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": context}],
            "current-context": name,
        }
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(json.dumps(content))
        return path

    def _write(self) -> None:
        authority = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lab cluster")])
        self.ca.write_bytes(_pem(_ca_certificate(issuer, authority)))
        server = ec.generate_private_key(ec.SECP256R1())
        self.certificate.write_bytes(_pem(_server_certificate(issuer, authority, server)))
        self.key.write_bytes(_key_pem(server))
        self.service_account_key.write_bytes(_key_pem(ec.generate_private_key(ec.SECP256R1())))
        rows = [
            f'{self.tokens[name]},{user},{user},"{group}"\n'
            for name, (user, group) in USERS.items()
        ]
        self.token_file.write_text("".join(rows))


def _builder(issuer: x509.Name, subject: x509.Name) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().issuer_name(issuer).subject_name(subject)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(
        now + timedelta(days=30)
    )


def _ca_certificate(issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = _builder(issuer, issuer).public_key(key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    return builder.add_extension(identifier, critical=False).sign(key, hashes.SHA256())


def _server_certificate(
    issuer: x509.Name, authority: ec.EllipticCurvePrivateKey, key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
    names = x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]
    )
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    builder = _builder(issuer, subject).public_key(key.public_key())
    builder = builder.add_extension(names, critical=False)
    builder = builder.add_extension(identifier, critical=False)
    builder = builder.add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
    )
    return builder.sign(authority, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
