"""Small random changes to bytes, as a faulty network, a proxy or an attacker makes them.

The given generator makes every choice, so the same seed makes the same changes.
"""

from collections.abc import Callable, Sequence
from random import Random

Mutation = Callable[[Random, bytearray, Sequence[bytes]], None]

SPECIAL = (0x00, 0x01, 0x04, 0x06, 0x20, 0x22, 0x30, 0x31, 0x5C, 0x7B, 0x7F, 0x80, 0x84, 0xA0, 0xFF)
"""Bytes that mean something to a parser of DER or of JSON, or to a decoder of text."""


def mutated(rng: Random, data: bytes, others: Sequence[bytes] = (), most: int = 4) -> bytes:
    """From one to `most` mutations of `data`; `others` are what is spliced in."""
    damaged = bytearray(data)
    for _ in range(rng.randint(1, most)):
        rng.choice(_MUTATIONS)(rng, damaged, others or (data,))
    return bytes(damaged)


def mutated_text(rng: Random, text: str, most: int = 2) -> str:
    """The same for a header's value, of any characters that one can hold."""
    return mutated(rng, text.encode("latin-1", "replace"), (), most).decode("latin-1")


def _at(rng: Random, data: bytearray) -> int:
    return rng.randrange(len(data)) if data else 0


def _flip(rng: Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[_at(rng, data)] ^= 1 << rng.randrange(8)


def _set(rng: Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[_at(rng, data)] = rng.choice(SPECIAL)


def _truncate(rng: Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[_at(rng, data) :]


def _cut_out(rng: Random, data: bytearray, _: Sequence[bytes]) -> None:
    start = _at(rng, data)
    del data[start : start + rng.randint(1, 40)]


def _insert(rng: Random, data: bytearray, _: Sequence[bytes]) -> None:
    start = _at(rng, data)
    data[start:start] = rng.randbytes(rng.randint(1, 6))


def _double(rng: Random, data: bytearray, _: Sequence[bytes]) -> None:
    start = _at(rng, data)
    piece = data[start : start + rng.randint(1, 80)]
    data[start:start] = piece


def _splice(rng: Random, data: bytearray, others: Sequence[bytes]) -> None:
    other = rng.choice(others)
    start, theirs = _at(rng, data), rng.randrange(len(other) + 1)
    data[start:] = other[theirs:]


def _overwrite(rng: Random, data: bytearray, others: Sequence[bytes]) -> None:
    other = rng.choice(others)
    start, length = _at(rng, data), rng.randint(1, 64)
    data[start : start + length] = other[start : start + length]


def _append(rng: Random, data: bytearray, others: Sequence[bytes]) -> None:
    data += rng.choice((b"\x00", b"\n", b" ", b"{}", rng.choice(others)))


_MUTATIONS: tuple[Mutation, ...] = (
    _flip,
    _flip,
    _set,
    _truncate,
    _cut_out,
    _insert,
    _double,
    _splice,
    _overwrite,
    _append,
)
