"""Proofs for the machines of a small fleet: their own, damaged, and an attacker's."""

import base64
from collections.abc import Sequence
from random import Random

from tests.fuzz import documents, tlv
from tests.fuzz.mutations import mutated
from tests.providers.documents import indefinite, signed


class Proofs:
    """`signed` are the contents that the provider signed, with the number of the machine named."""

    def __init__(self, launched_at: Sequence[float]) -> None:
        times = list(enumerate(launched_at, 1))
        self.signed = {documents.content_of(n, at): n for n, at in times}
        contents = list(self.signed)
        infos = [documents.OLD.signer_info(content) for content in contents]
        pairs = list(zip(contents, infos, strict=True))
        self.own = [signed(content, info) for content, info in pairs]
        self.own_ber = [indefinite(content, info) for content, info in pairs]
        later = [documents.content_of(n, at + 60.0) for n, at in times]
        self.stale = [signed(content, documents.NEW.signer_info(content)) for content in later]
        self.signed |= {content: n for n, content in enumerate(later, 1)}
        self.forged = [
            signed(content, signer.signer_info(content), embedded=signer.certificate)
            for content in contents
            for signer in (documents.STRANGER, documents.IMPOSTOR)
        ]

    def honest(self, machine: int) -> str:
        """A machine's own, as it would send it; `machine` counts from 0."""
        return base64.b64encode(self.own[machine]).decode()

    def any(self, rng: Random, machine: int) -> str:
        """A machine's own in any spelling, or something that is not."""
        own = rng.choice((self.own, self.own, self.own_ber))[machine]
        match rng.randrange(8):
            case 0:
                own = tlv.damaged(rng, own, self.own)
            case 1:
                own = mutated(rng, own, self.own, 2)
            case 2:
                own = rng.choice(self.forged)
            case 3:
                own = self.stale[machine]
            case 4:
                own = base64.encodebytes(own)
        return base64.b64encode(own).decode()
