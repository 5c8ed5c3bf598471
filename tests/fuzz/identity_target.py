"""Fuzzes the reader of instance identity documents: it must accept signed content only."""

import base64
import binascii
from collections.abc import Callable, Sequence
from random import Random

from autoscaler.controller.ports.provider import ProofRefusedError, ProvenIdentity
from autoscaler.providers.ec2.identity.cms import signed_content
from autoscaler.providers.ec2.identity.documents import IdentityVerifier
from tests.fuzz import documents, tlv
from tests.fuzz.mutations import mutated
from tests.fuzz.target import Finding, Input, described
from tests.providers.documents import ACCOUNT, REGION

REASONS = frozenset({"malformed", "certificate", "signature", "account", "region"})

Verify = Callable[[bytes, str], ProvenIdentity]
"""Returns the machine that a proof names. Raises ProofRefusedError and nothing else."""


class IdentityTarget:
    """`verify` is the code under test, or one with a hole in it."""

    name = "identity"

    def __init__(self, verify: Verify | None = None) -> None:
        self._verify = verify or IdentityVerifier(REGION, documents.PINNED).verify
        self._documents = documents.documents()
        self._raw = [m for m in self._documents.honest if m[:1] == b"\x30"]

    def draw(self, rng: Random) -> Input:
        """Half from signed documents, some of them an attacker's; half from a grammar."""
        proof = self._from_signed(rng) if rng.random() < 0.5 else self._from_grammar(rng)
        return proof.decode("latin-1")

    def tries(self, given: Input) -> int:
        """One document."""
        return 1

    def try_all(self, given: Sequence[Input]) -> list[Finding]:
        """See `Target`."""
        found = ((one, self._try(one.encode("latin-1"))) for one in given)
        return [Finding(one, why) for one, why in found if why is not None]

    def close(self) -> None:
        """Nothing is open."""

    def _try(self, proof: bytes) -> str | None:
        try:
            content = signed_content(_raw(proof), documents.PINNED)
        except ProofRefusedError:
            content = None
        except Exception as error:  # noqa: BLE001 - a crash is what is looked for
            return f"signed_content crashed: {described(error)}"
        if content is not None and content not in self._documents.signed:
            return "a content was believed that was never signed"
        try:
            proven = self._verify(proof, ACCOUNT)
        except ProofRefusedError as refused:
            return None if refused.reason in REASONS else f"unknown reason {refused.reason}"
        except Exception as error:  # noqa: BLE001 - as above
            return f"verify crashed: {described(error)}"
        if proven not in self._documents.identities:
            return f"an identity was believed that was never signed: {proven}"
        return None

    def _from_signed(self, rng: Random) -> bytes:
        pool = self._documents.honest if rng.random() < 0.6 else self._documents.forged
        proof = rng.choice(pool)
        for _ in range(rng.choice((0, 1, 1, 1, 1, 2, 3))):
            if rng.random() < 0.6 and proof[:1] == b"\x30":
                proof = tlv.damaged(rng, proof, self._raw)
            else:
                proof = mutated(rng, proof, self._raw, 2)
        return base64.b64encode(proof) if rng.random() < 0.05 else proof

    def _from_grammar(self, rng: Random) -> bytes:
        match rng.randrange(8):
            case 0:
                return rng.randbytes(rng.randrange(200))
            case 1:
                return base64.b64encode(rng.randbytes(rng.randrange(200)))
            case 2:
                return base64.encodebytes(_skeleton(rng))
            case 3:
                return b"\x30\x80" * rng.randrange(1, 1_500)
            case 4:
                return tlv.encoded(0x30, tlv.made_up(rng, 8))
            case _:
                return _skeleton(rng)


def _raw(proof: bytes) -> bytes:
    """What is read of a proof: itself, or what its base64 says."""
    if proof[:1] == b"\x30":
        return proof
    try:
        return base64.b64decode(b"".join(proof.split()), validate=True)
    except binascii.Error:
        return proof


def _skeleton(rng: Random) -> bytes:
    """A SignedData as the grammar has it, any part of which may be something else."""

    def part(tag: int, *inner: bytes) -> bytes:
        if rng.random() < 0.06:
            return tlv.made_up(rng, 3)
        if rng.random() < 0.03:
            return b""
        return tlv.encoded(tag, b"".join(inner))

    def oid(number: int) -> bytes:
        return part(0x06, tlv.OIDS[number] if rng.random() < 0.9 else rng.choice(tlv.OIDS))

    content = documents.content_of(rng.randrange(99))
    digest = part(0x30, oid(9), part(0x05))
    attributes = [
        part(0x30, oid(3), part(0x31, oid(0))),
        part(0x30, oid(4), part(0x31, part(0x04, rng.randbytes(32)))),
    ]
    rng.shuffle(attributes)
    sid = part(0x30, part(0x30), part(0x02, bytes([rng.choice((7, 8, 9, 0x80))])))
    signer = part(
        0x30,
        part(0x02, b"\x01"),
        sid,
        digest,
        part(0xA0, *attributes * rng.choice((1, 1, 1, 2))),
        part(0x30, oid(rng.choice((6, 7, 8))), part(0x05)),
        part(0x04, rng.randbytes(rng.choice((0, 1, 256)))),
    )
    data = part(
        0x30,
        part(0x02, b"\x01"),
        part(0x31, digest),
        part(0x30, oid(0), part(0xA0, part(0x04, content))),
        part(0x31, *[signer] * rng.choice((1, 1, 1, 0, 2))),
    )
    return part(0x30, oid(1), part(0xA0, data))
