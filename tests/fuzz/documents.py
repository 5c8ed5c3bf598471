"""Documents that the provider signed, an attacker's forgeries of them, and the machine each one names.

`Documents` is the oracle of the fuzzers: only a content that is in `signed` may be accepted.
"""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from asn1crypto import cms
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding

from autoscaler.controller.ports.provider import ProvenIdentity
from autoscaler.model.identifiers import ProviderMachineId
from tests.fuzz.keys import key
from tests.providers.documents import Signer, document, indefinite, signed

OLD = Signer(serial=7, key=key(0))
NEW = Signer(serial=9, key=key(1))
STRANGER = Signer(serial=8, key=key(2))
IMPOSTOR = Signer(serial=7, key=key(2))
"""An attacker's key with the pinned certificate's serial number and issuer."""

PINNED: tuple[x509.Certificate, ...] = (OLD.certificate, NEW.certificate)


def content_of(machine: int, launched_at: float = 1_800_000_000.0, **changes: Any) -> bytes:
    """Return the document of a machine, whose bytes are unique."""
    moment = datetime.fromtimestamp(launched_at, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    fields = {"instanceId": instance_id(machine), "pendingTime": moment, "imageId": "ami-1"}
    return document(**(fields | changes))


def instance_id(machine: int) -> str:
    """EC2's way to write a machine's number."""
    return f"i-{machine:017x}"


@dataclass(frozen=True, slots=True)
class Documents:
    """`honest` messages contain contents in `signed`; an attacker made the `forged` ones."""

    signed: frozenset[bytes]
    identities: frozenset[ProvenIdentity]
    honest: tuple[bytes, ...]
    forged: tuple[bytes, ...]


def documents() -> Documents:
    """Return documents of eight machines of the fleet, and signed ones that must be refused."""
    known = [content_of(n, 1_800_000_000.0 + n) for n in range(1, 9)]
    refused = [
        content_of(20, accountId="999999999999"),
        content_of(21, region="eu-west-1"),
        content_of(22, imageId=None),
        b"[]",
        b"{" + b"[" * 300,
        b"",
    ]
    honest = [m for c in (*known, *refused) for signer in (OLD, NEW) for m in _written(signer, c)]
    forged = [message for c in known[:3] for message in _forged(c, known[-1])]
    identities = frozenset(
        ProvenIdentity(ProviderMachineId(instance_id(n)), "ami-1", _moment(n)) for n in range(1, 9)
    )
    return Documents(frozenset((*known, *refused)), identities, tuple(honest), tuple(forged))


def _moment(machine: int) -> str:
    return f"2027-01-15T08:00:{machine:02d}Z"


def _written(signer: Signer, content: bytes) -> Iterator[bytes]:
    """Return one signature in every encoding that a metadata service could use."""
    info = signer.signer_info(content)
    der = signed(content, info)
    yield der
    yield base64.encodebytes(der)
    yield signed(content, info, embedded=signer.certificate)
    if content:
        ber = indefinite(content, info)
        yield ber
        yield base64.encodebytes(ber)


def _forged(content: bytes, captured: bytes) -> Iterator[bytes]:
    """Return an attacker's messages, made from a captured document, an own key, and `content` for another
    machine."""
    wish = content.replace(b"i-0", b"i-f")
    theirs, honest = STRANGER.signer_info(wish), OLD.signer_info(captured)
    named_as_ours = STRANGER.signer_info(wish)
    named_as_ours["sid"] = OLD.identifier()
    for embedded in (None, STRANGER.certificate, OLD.certificate):
        yield signed(wish, theirs, embedded=embedded)
        yield signed(wish, named_as_ours, embedded=embedded)
        yield signed(wish, IMPOSTOR.signer_info(wish), embedded=embedded)
        yield signed(wish, honest, embedded=embedded)
    yield signed(wish, IMPOSTOR.signer_info(wish), embedded=IMPOSTOR.certificate)
    yield signed(wish, honest, theirs)
    yield signed(wish, theirs, honest)
    yield signed(wish, honest, honest)
    yield from (signed(wish, info) for info in _bent(wish, captured))
    # The signed attributes given as the content: signed bytes, but never a document.
    attributes = honest["signed_attrs"].untag().dump()
    bare = OLD.signer_info(captured)
    del bare["signed_attrs"]
    yield signed(attributes, bare)
    yield signed(wish, bare)


def _bent(wish: bytes, captured: bytes) -> Iterator[cms.SignerInfo]:
    """The provider's own signature with something else around it."""
    digest = {"type": "message_digest", "values": [hashlib.sha256(wish).digest()]}
    known = {"type": "message_digest", "values": [hashlib.sha256(captured).digest()]}
    plain = {"type": "content_type", "values": ["data"]}
    both = {"type": "message_digest", "values": [*digest["values"], *known["values"]]}
    orders: Sequence[Sequence[dict[str, Any]]] = (
        (plain, digest),
        (plain, digest, known),
        (plain, known, digest),
        (plain, both),
        (plain, plain, digest),
    )
    for order in orders:
        info = OLD.signer_info(captured)
        info["signed_attrs"] = cms.CMSAttributes([cms.CMSAttribute(one) for one in order])
        yield info
        doubled = STRANGER.signer_info(wish)
        doubled["sid"] = OLD.identifier()
        doubled["signed_attrs"] = info["signed_attrs"]
        attributes = info["signed_attrs"].untag().dump()
        doubled["signature"] = STRANGER.key.sign(attributes, padding.PKCS1v15(), hashes.SHA256())
        yield doubled
    for algorithm in ("sha1", "md5", "sha512"):
        weak = OLD.signer_info(wish, hashlib.sha256(captured).digest())
        weak["digest_algorithm"] = {"algorithm": algorithm}
        weak["signature"] = b"\x00" * 256
        yield weak
    unsigned = OLD.signer_info(captured)
    unsigned["unsigned_attrs"] = cms.CMSAttributes([cms.CMSAttribute(digest)])
    yield unsigned
    for signature in (b"", b"\x00", b"\x00" * 256, b"\x01" * 256, b"\xff" * 256, b"\x00" * 512):
        empty = OLD.signer_info(wish)
        empty["signature"] = signature
        yield empty
