"""Signed documents for tests: valid and forged ones, in DER and in BER with indefinite lengths."""

import datetime
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from asn1crypto import algos, cms, core
from asn1crypto import x509 as asn1_x509
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

ACCOUNT = "123456789012"
REGION = "us-east-1"


def document(**changes: Any) -> bytes:
    """Return a document's JSON with some fields changed. None removes a field."""
    fields: dict[str, Any] = {
        "accountId": ACCOUNT,
        "architecture": "x86_64",
        "availabilityZone": "us-east-1a",
        "billingProducts": None,
        "imageId": "ami-0fa9e1f64142cde17",
        "instanceId": "i-078517ca8a70a1dde",
        "instanceType": "g5.xlarge",
        "pendingTime": "2026-09-03T21:25:44Z",
        "privateIp": "10.0.0.209",
        "region": REGION,
        "version": "2017-09-30",
    } | changes
    return json.dumps({key: value for key, value in fields.items() if value is not None}).encode()


@dataclass(frozen=True, slots=True)
class Signer:
    """A key and its own certificate."""

    serial: int
    key: rsa.RSAPrivateKey = field(
        default_factory=lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048)
    )

    @property
    def certificate(self) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Another Company")])
        start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self.key.public_key())
            .serial_number(self.serial)
            .not_valid_before(start)
            .not_valid_after(start + datetime.timedelta(days=36_500))
            .sign(self.key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def signer_info(self, content: bytes, digest: bytes | None = None) -> cms.SignerInfo:
        """The signature over `content`, or over another digest."""
        attributes = cms.CMSAttributes(
            [
                cms.CMSAttribute({"type": "content_type", "values": ["data"]}),
                cms.CMSAttribute(
                    {
                        "type": "message_digest",
                        "values": [digest or hashlib.sha256(content).digest()],
                    }
                ),
            ]
        )
        return cms.SignerInfo(
            {
                "version": "v1",
                "sid": self.identifier(),
                "digest_algorithm": algos.DigestAlgorithm({"algorithm": "sha256"}),
                "signed_attrs": attributes,
                "signature_algorithm": algos.SignedDigestAlgorithm(
                    {"algorithm": "rsassa_pkcs1v15"}
                ),
                "signature": self.key.sign(attributes.dump(), padding.PKCS1v15(), hashes.SHA256()),
            }
        )

    def identifier(self) -> cms.SignerIdentifier:
        issuer = asn1_x509.Name.load(self.certificate.issuer.public_bytes())
        return cms.SignerIdentifier(
            {
                "issuer_and_serial_number": cms.IssuerAndSerialNumber(
                    {"issuer": issuer, "serial_number": self.serial}
                )
            }
        )


def signed(
    content: bytes,
    *signers: cms.SignerInfo,
    embedded: x509.Certificate | None = None,
) -> bytes:
    """A SignedData in DER, with a certificate in it if one is given."""
    fields: dict[str, Any] = {
        "version": "v1",
        "digest_algorithms": [algos.DigestAlgorithm({"algorithm": "sha256"})],
        "encap_content_info": {"content_type": "data", "content": content},
        "signer_infos": list(signers),
    }
    if embedded is not None:
        der = embedded.public_bytes(serialization.Encoding.DER)
        fields["certificates"] = [asn1_x509.Certificate.load(der)]
    data = cms.SignedData(fields)
    return bytes(cms.ContentInfo({"content_type": "signed_data", "content": data}).dump())


def indefinite(content: bytes, signer: cms.SignerInfo, chunk: int = 100) -> bytes:
    """The same in BER as AWS writes it: indefinite lengths, the content in pieces."""
    pieces = b"".join(
        core.OctetString(content[at : at + chunk]).dump() for at in range(0, len(content), chunk)
    )
    algorithms = cms.DigestAlgorithms([algos.DigestAlgorithm({"algorithm": "sha256"})]).dump()
    inner = _open(0x30, cms.ContentType("data").dump() + _open(0xA0, _open(0x24, pieces)))
    signers = cms.SignerInfos([signer]).dump()
    data = _open(0x30, core.Integer(1).dump() + algorithms + inner + signers)
    return _open(0x30, cms.ContentType("signed_data").dump() + _open(0xA0, data))


def _open(tag: int, content: bytes) -> bytes:
    return bytes([tag, 0x80]) + content + b"\x00\x00"
