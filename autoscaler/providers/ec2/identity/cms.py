"""Checks a CMS signature (PKCS7 SignedData with embedded content) against pinned certificates.

Trusts only pinned certificates, and ignores certificates in the message. Reads BER with indefinite
lengths, as AWS writes it. The caller interprets the content.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from asn1crypto import cms
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509 import Certificate

from autoscaler.controller.ports.provider import ProofRefusedError

MIN_KEY_BITS = 2048

MAX_ELEMENTS = 192
"""AWS's documents have 72. The caller's event loop waits for asn1crypto: 0.15 ms for AWS's documents,
0.5 ms for the slowest accepted ones. 4 KiB of the smallest elements would take 2 ms."""

_CONSTRUCTED, _LONG_TAG, _LONG_LENGTH = 0x20, 0x1F, 0x80


def signed_content(message: bytes, pinned: Sequence[Certificate]) -> bytes:
    """Return the content if one of the pinned certificates signed it (RSA PKCS#1 v1.5, SHA-256).

    Raises ProofRefusedError with the reason `malformed`, `certificate` (the named signer is not
    pinned) or `signature`.
    """
    try:
        _refuse_too_many(message)
        content, signer = _parts(message)
        signed = _signed_attributes(signer)
        attributes = _attribute_values(signer)
        signature = signer["signature"].native
        serial = _signer_serial(signer)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        # asn1crypto parses lazily, and raises any of these errors.
        raise ProofRefusedError("malformed", type(error).__name__) from None
    if attributes != {"content_type": "data", "message_digest": hashlib.sha256(content).digest()}:
        raise ProofRefusedError("signature", "the signed digest does not match the content")
    # The serial number only selects the certificate. The signature proves the signer.
    named = [one for one in pinned if one.serial_number == serial]
    if not named:
        raise ProofRefusedError("certificate", "no pinned certificate is named as the signer")
    if not any(_verifies(one, signature, signed) for one in named):
        raise ProofRefusedError("signature", "the signature does not match the pinned certificate")
    return content


def _refuse_too_many(message: bytes) -> None:
    """Count the elements by their tags and lengths. Raises ValueError, IndexError."""
    at = count = 0
    while at < len(message):
        tag, length = message[at], message[at + 1]
        at += 2
        if tag & _LONG_TAG == _LONG_TAG:
            raise ValueError("a tag that no signed document has")
        if length > _LONG_LENGTH:
            octets = length - _LONG_LENGTH
            length = int.from_bytes(message[at : at + octets], "big")
            at += octets
        if not tag & _CONSTRUCTED:
            at += length
        count += 1
        if count > MAX_ELEMENTS:
            raise ValueError("more elements than a signed document has")


def _parts(message: bytes) -> tuple[bytes, Any]:
    outer = cms.ContentInfo.load(message, strict=True)
    if outer["content_type"].native != "signed_data":
        raise ValueError("no SignedData")
    data = outer["content"]
    embedded = data["encap_content_info"]
    if embedded["content_type"].native != "data":
        raise ValueError("the content is not plain data")
    content = embedded["content"].native
    signers = data["signer_infos"]
    if not isinstance(content, bytes) or len(signers) != 1:
        raise ValueError("not one content with one signer")
    signer = signers[0]
    if signer["digest_algorithm"]["algorithm"].native != "sha256":
        raise ValueError("the digest is not SHA-256")
    if signer["signature_algorithm"]["algorithm"].native not in {"rsassa_pkcs1v15", "sha256_rsa"}:
        raise ValueError("the signature is not RSA PKCS#1 v1.5 with SHA-256")
    return content, signer


def _signed_attributes(signer: Any) -> bytes:
    # The signature covers the attributes with the tag SET OF instead of [0] (RFC 5652, 5.4).
    encoded: bytes = signer["signed_attrs"].untag().dump()
    return encoded


def _attribute_values(signer: Any) -> dict[str, object]:
    wanted: dict[str, object] = {}
    for attribute in signer["signed_attrs"]:
        name = attribute["type"].native
        if name not in {"content_type", "message_digest"}:
            continue
        values = attribute["values"]
        if name in wanted or len(values) != 1:
            raise ValueError(f"{name} does not occur exactly once")
        wanted[name] = values[0].native
    if len(wanted) != 2:
        raise ValueError("content type and digest are not both signed")
    return wanted


def _signer_serial(signer: Any) -> int:
    name = signer["sid"].chosen
    if not isinstance(name, cms.IssuerAndSerialNumber):
        raise TypeError("the signer is not named by issuer and serial number")
    serial: int = name["serial_number"].native
    return serial


def _verifies(certificate: Certificate, signature: bytes, signed: bytes) -> bool:
    key = certificate.public_key()
    if not isinstance(key, rsa.RSAPublicKey):
        return False
    try:
        key.verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        return False
    return True
