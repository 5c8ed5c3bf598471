"""Tags and lengths of DER and BER: found, damaged, taken out, swapped, and made up from a grammar."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

_CONSTRUCTED = 0x20
_LONG = 0x80

TAGS = (0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x0C, 0x13, 0x17, 0x24, 0x30, 0x31, 0x80, 0xA0, 0xA1)

OIDS = tuple(
    bytes.fromhex(digits)
    for digits in (
        "2a864886f70d010701",  # data
        "2a864886f70d010702",  # signedData
        "2a864886f70d010703",  # envelopedData
        "2a864886f70d010903",  # contentType
        "2a864886f70d010904",  # messageDigest
        "2a864886f70d010905",  # signingTime
        "2a864886f70d010101",  # rsaEncryption
        "2a864886f70d01010b",  # sha256WithRSAEncryption
        "2a864886f70d01010a",  # RSASSA-PSS
        "608648016503040201",  # sha256
        "2b0e03021a",  # sha1
        "2a8648ce3d040302",  # ecdsa-with-SHA256
        "550403",  # commonName
    )
)


@dataclass(frozen=True, slots=True)
class Element:
    """Where one element stands in a message; `end` is where its content ends."""

    start: int
    content: int
    end: int
    length_octets: int


def elements(message: bytes, most: int = 200) -> list[Element]:
    """Every element, outer ones first; an indefinite length reaches to the end of what holds it."""
    found: list[Element] = []
    open_ranges = [(0, len(message))]
    while open_ranges and len(found) < most:
        start, end = open_ranges.pop()
        while start + 2 <= end and len(found) < most:
            first = message[start + 1]
            octets = 1 + (first & 0x7F if first > _LONG else 0)
            content = start + 1 + octets
            length = first if first < _LONG else int.from_bytes(message[start + 2 : content], "big")
            stop = end if first == _LONG else min(end, content + length)
            if content > end:
                break
            found.append(Element(start, content, stop, octets))
            if message[start] & _CONSTRUCTED:
                open_ranges.append((content, stop))
            start = max(stop, start + 2)
    return found


def damaged(rng: Random, message: bytes, others: Sequence[bytes]) -> bytes:
    """One change that a byte mutation would seldom hit upon: of a length, a tag, or a whole element.

    Half of the time the lengths around it are put right, so that the change is read at all.
    """
    known = elements(message)
    if not known:
        return message
    one = rng.choice(known)
    whole = message[one.start : one.end]
    match rng.randrange(7):
        case 0:
            return _relengthened(rng, message, one)
        case 1:
            instead = bytes([rng.choice(TAGS)]) + whole[1:]
        case 2:
            instead = whole * 2
        case 3:
            instead = b""
        case 4:
            instead = _foreign(rng, others)
        case 5:
            instead = rng.choice((whole + _foreign(rng, others), _foreign(rng, others) + whole))
        case _:
            instead = whole[:1] + b"\x80" + message[one.content : one.end] + b"\x00\x00"
    changed = message[: one.start] + instead + message[one.end :]
    if rng.random() < 0.5:
        return changed
    around = [e for e in known if e.content <= one.start and one.end <= e.end and e is not one]
    return _put_right(changed, around, len(instead) - len(whole))


def _put_right(message: bytes, around: Sequence[Element], grown: int) -> bytes:
    """Write the lengths of what is around a change anew, from the inside out."""
    for one in sorted(around, key=lambda e: e.start, reverse=True):
        if message[one.start + 1] == _LONG:
            continue
        length = _length(one.end - one.content + grown)
        grown += len(length) - one.length_octets
        message = message[: one.start + 1] + length + message[one.content :]
    return message


def encoded(tag: int, content: bytes) -> bytes:
    """One element in DER."""
    return bytes([tag]) + _length(len(content)) + content


def _length(size: int) -> bytes:
    if size < _LONG:
        return bytes([size])
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([_LONG | len(octets)]) + octets


def made_up(rng: Random, depth: int = 5) -> bytes:
    """An element of the grammar, of any tag, holding others or bytes."""
    tag = rng.choice(TAGS)
    if depth and (tag & _CONSTRUCTED or rng.random() < 0.1):
        inner = b"".join(made_up(rng, depth - 1) for _ in range(rng.randrange(5)))
        if rng.random() < 0.15:
            return bytes([tag, _LONG]) + inner + b"\x00\x00"
        return encoded(tag, inner)
    return encoded(tag, rng.choice(OIDS) if tag == 0x06 else rng.randbytes(rng.randrange(12)))


def _relengthened(rng: Random, message: bytes, one: Element) -> bytes:
    length = one.end - one.content
    wrong = max(0, length + rng.choice((-2, -1, 0, 1, 2, 127, 256)))
    octets = rng.choice(
        (
            bytes([wrong & 0x7F]),
            bytes([0x81, wrong & 0xFF]),
            bytes([0x82]) + (wrong & 0xFFFF).to_bytes(2, "big"),
            bytes([0x84]) + wrong.to_bytes(4, "big"),
            b"\x84\xff\xff\xff\xff",
            b"\x88" + b"\x7f" * 8,
            b"\x80",
            b"\xff",
        )
    )
    return message[: one.start + 1] + octets + message[one.content :]


def _foreign(rng: Random, others: Sequence[bytes]) -> bytes:
    if rng.random() < 0.2:
        return made_up(rng, 2)
    other = rng.choice(others)
    known = elements(other)
    if not known:
        return other[:8]
    one = rng.choice(known)
    return other[one.start : one.end]
