"""Instance identity documents and their signatures, in AWS's format.

Also makes the forged documents that tests need.

The ASN.1 is that of AWS's RSA-2048 signature: SignedData with the content embedded, no certificate, signed
attributes, BER with indefinite lengths around the DER of the signer.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from asn1crypto import algos, cms, core
from asn1crypto import x509 as asn1_x509
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

VALIDITY = timedelta(days=36_500)
END_OF_CONTENTS = b"\x00\x00"
SIGNED_DATA = cms.ContentType("signed_data").dump()
DATA = cms.ContentType("data").dump()


@dataclass(frozen=True, slots=True)
class IdentitySigner:
    """A key with its certificate. All certificates have the same names, as a forged one would have."""

    key: rsa.RSAPrivateKey
    certificate: x509.Certificate

    def __repr__(self) -> str:
        """Return a representation without the key."""
        return f"IdentitySigner(serial={self.certificate.serial_number})"

    @classmethod
    def generate(cls) -> "IdentitySigner":
        """Create a 2048-bit key and its certificate. Takes about 100 ms of CPU time."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        name = x509.Name(
            [
                x509.NameAttribute(NameOID.COUNTRY_NAME, "US"),
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Lab EC2"),
            ]
        )
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            # Lab time may be far ahead of real time.
            .not_valid_after(now + VALIDITY)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    @property
    def certificate_pem(self) -> bytes:
        """The certificate in PEM, for clients that pin it."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def sign(
        self,
        document: bytes,
        *,
        shown: bytes | None = None,
        claims: "IdentitySigner | None" = None,
        embed_certificate: bool = False,
    ) -> bytes:
        """Return a document's signature: base64 in lines of 76, as `/dynamic/instance-identity/rsa2048`.

        The other parameters make a forgery: `shown` replaces the signed content, `claims` names another
        signer's certificate as issuer and serial number, `embed_certificate` adds this one's certificate.
        """
        named = asn1_x509.Certificate.load(
            (claims or self).certificate.public_bytes(serialization.Encoding.DER)
        )
        own = asn1_x509.Certificate.load(self.certificate.public_bytes(serialization.Encoding.DER))
        certificates = own.dump() if embed_certificate else b""
        body = _signed_data(
            document if shown is None else shown, certificates, self._signer_info(document, named)
        )
        lines = base64.encodebytes(body)
        return lines.rstrip(b"\n")

    def _signer_info(self, document: bytes, named: asn1_x509.Certificate) -> bytes:
        attributes = cms.CMSAttributes(
            [
                _attribute("content_type", cms.ContentType("data")),
                _attribute("signing_time", cms.Time({"utc_time": core.UTCTime(datetime.now(UTC))})),
                _attribute(
                    "cms_algorithm_protection",
                    cms.CMSAlgorithmProtection(
                        {
                            "digest_algorithm": algos.DigestAlgorithm({"algorithm": "sha256"}),
                            "signature_algorithm": {"algorithm": "sha256_rsa"},
                        }
                    ),
                ),
                _attribute("message_digest", core.OctetString(hashlib.sha256(document).digest())),
            ]
        )
        # RFC 5652, 5.4: what is signed is the attributes' DER with a SET OF tag.
        signature = self.key.sign(attributes.dump(), padding.PKCS1v15(), hashes.SHA256())
        info = cms.SignerInfo(
            {
                "version": "v1",
                "sid": {
                    "issuer_and_serial_number": {
                        "issuer": named.issuer,
                        "serial_number": named.serial_number,
                    }
                },
                "digest_algorithm": algos.DigestAlgorithm({"algorithm": "sha256"}),
                "signed_attrs": attributes,
                "signature_algorithm": {"algorithm": "sha256_rsa"},
                "signature": signature,
            }
        )
        return bytes(info.dump())


def _attribute(kind: str, value: Any) -> cms.CMSAttribute:
    return cms.CMSAttribute({"type": kind, "values": [value]})


def _signed_data(content: bytes, certificates: bytes, signer_info: bytes) -> bytes:
    """Return the ContentInfo with AWS's mix of indefinite and definite lengths."""
    version = core.Integer(1).dump()
    digests = _definite(0x31, algos.DigestAlgorithm({"algorithm": "sha256"}).dump())
    embedded = DATA + _indefinite(0xA0, _indefinite(0x24, core.OctetString(content).dump()))
    tail = (_definite(0xA0, certificates) if certificates else b"") + _definite(0x31, signer_info)
    signed = _indefinite(0x30, version + digests + _indefinite(0x30, embedded) + tail)
    return _indefinite(0x30, SIGNED_DATA + _indefinite(0xA0, signed))


def _indefinite(tag: int, content: bytes) -> bytes:
    return bytes([tag, 0x80]) + content + END_OF_CONTENTS


def _definite(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    digits = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(digits)]) + digits + content


def render_document(fields: Mapping[str, str]) -> bytes:
    """Return a document's text with AWS's names, order and layout.

    `fields` has accountId, architecture, availabilityZone, imageId, instanceId, instanceType, pendingTime,
    privateIp and region. The fields that AWS leaves empty are added.
    """
    document: dict[str, str | None] = {
        "billingProducts": None,
        "devpayProductCodes": None,
        "kernelId": None,
        "marketplaceProductCodes": None,
        "ramdiskId": None,
        "version": "2017-09-30",
    }
    document.update(fields)
    lines = [f'  "{name}" : {json.dumps(document[name])}' for name in sorted(document)]
    return ("{\n" + ",\n".join(lines) + "\n}").encode()
